#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "sim/record/layout.h"
#include "sim/record/recorder.h"

namespace lockstep {

void write_records(const std::string& path, const RankRecords& records) {
  alignas(RecordHeader) char head[kRecordHeaderBytes] = {};
  auto* header = new (head) RecordHeader{};
  header->magic = RecordHeader::kMagic;
  header->version = RecordHeader::kVersion;
  header->rank = records.rank;
  header->world_size = records.world_size;
  header->clock_offset_ns = records.clock_offset_ns;
  header->clock_uncertainty_ns = records.clock_uncertainty_ns;
  // A ring has room for one event at least.
  const size_t capacity = std::max<size_t>(records.events.size(), 1);
  std::vector<Event> ring = records.events;
  ring.resize(capacity);
  header->capacity = capacity;
  header->appended = records.events.size();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                             &std::fclose);
  const bool written = file && std::fwrite(head, sizeof head, 1, file.get()) == 1 &&
                       std::fwrite(ring.data(), sizeof(Event), capacity, file.get()) == capacity &&
                       std::fflush(file.get()) == 0;
  if (!written) throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace lockstep
