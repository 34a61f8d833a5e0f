#include "sim/record/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"

namespace lockstep {

const char* to_word(Check check) {
  switch (check) {
    case Check::manifest:
      return "manifest";
    case Check::absent_gradients:
      return "absent_gradients";
    case Check::aliasing:
      return "aliasing";
    case Check::checkpoint:
      return "checkpoint";
    case Check::samples:
      return "samples";
    case Check::batch:
      return "batch";
    case Check::accumulation:
      return "accumulation";
  }
  return "unknown";
}

namespace {

[[noreturn]] void fail(int error, const std::string& what, const std::string& path) {
  throw std::system_error(error, std::generic_category(), what + " " + path);
}

// Creates the file with all its blocks, and maps it.
void* map_new_file(const std::string& path, size_t bytes) {
  // A new file, never the old one cut short: that may still be mapped somewhere.
  ::unlink(path.c_str());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) fail(errno, "cannot create the record file", path);
  int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  void* base = MAP_FAILED;
  if (error == 0) {
    base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error != 0) {
    ::unlink(path.c_str());
    fail(error, "no room for the record file", path);
  }
  return base;
}

}  // namespace

std::unique_ptr<Recorder> Recorder::create(const std::string& path, int32_t rank,
                                           int32_t world_size, uint64_t capacity) {
  LOCKSTEP_CHECK(capacity > 0, "a recorder without room");
  const size_t bytes = kRecordHeaderBytes + capacity * sizeof(Event);
  void* base = map_new_file(path, bytes);
  auto* header = new (base) RecordHeader;
  header->version = RecordHeader::kVersion;
  header->rank = rank;
  header->world_size = world_size;
  header->reserved = 0;
  header->clock_offset_ns = 0;
  header->clock_uncertainty_ns = 0;
  header->capacity = capacity;
  header->appended.store(0, std::memory_order_relaxed);
  // Last, so that a reader never takes a half-written head for a whole one.
  std::atomic_ref<uint64_t>(header->magic).store(RecordHeader::kMagic, std::memory_order_release);
  return std::unique_ptr<Recorder>(new Recorder(base, bytes));
}

Recorder::Recorder(void* base, size_t mapped_bytes)
    : header_(static_cast<RecordHeader*>(base)),
      events_(reinterpret_cast<Event*>(static_cast<std::byte*>(base) + kRecordHeaderBytes)),
      mapped_bytes_(mapped_bytes) {}

Recorder::~Recorder() { ::munmap(header_, mapped_bytes_); }

void Recorder::set_step(int32_t step) { step_.store(step, std::memory_order_relaxed); }

void Recorder::enter(Phase phase) {
  phase_.store(static_cast<uint16_t>(phase), std::memory_order_relaxed);
  if (core_wait_ && phase == Phase::load) core_wait_->look_for_group();
  append(EventKind::phase_begin, -1, core_wait_ns());
}

void Recorder::end_step() {
  const int64_t others_us = core_wait_ ? core_wait_->others_ns() / 1000 : 0;
  append(EventKind::step_end, -1, core_wait_ns(), static_cast<uint32_t>(others_us));
}

void Recorder::measure_core_wait() { core_wait_ = CoreWait::of_this_thread(); }

uint64_t Recorder::core_wait_ns() noexcept {
  return core_wait_ ? static_cast<uint64_t>(core_wait_->own_ns() + added_core_wait_ns_) : 0;
}

Phase Recorder::phase() const { return static_cast<Phase>(phase_.load(std::memory_order_relaxed)); }

void Recorder::append(EventKind kind, int32_t subject, uint64_t value, uint32_t sequence) {
  const uint64_t index = header_->appended.fetch_add(1, std::memory_order_relaxed);
  Event& event = events_[index % header_->capacity];
  std::atomic_ref<uint16_t> published(event.kind);
  // An old event of the ring stands here: unpublish it before its fields change.
  published.store(static_cast<uint16_t>(EventKind::none), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  event.time_ns = now_ns();
  event.sequence = sequence;
  event.phase = phase_.load(std::memory_order_relaxed);
  event.step = step();
  event.subject = subject;
  event.value = value;
  published.store(static_cast<uint16_t>(kind), std::memory_order_release);
}

void Recorder::clear() {
  const uint64_t used = std::min(header_->appended.load(), header_->capacity);
  std::memset(static_cast<void*>(events_), 0, used * sizeof(Event));
  header_->appended.store(0, std::memory_order_release);
  step_.store(0, std::memory_order_relaxed);
  phase_.store(0, std::memory_order_relaxed);
}

namespace {

// RecordHeader as it lies in the file; the atomic is a plain number to a reader.
struct Head {
  uint64_t magic = 0;
  uint32_t version = 0;
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t reserved = 0;
  int64_t clock_offset_ns = 0;
  int64_t clock_uncertainty_ns = 0;
  uint64_t capacity = 0;
  uint64_t appended = 0;
};
static_assert(sizeof(Head) == sizeof(RecordHeader));
static_assert(offsetof(Head, appended) == offsetof(RecordHeader, appended));

// 512 MB of them; a sparse file may claim any number.
constexpr uint64_t kMostEvents = uint64_t{1} << 24;

class File {
 public:
  // Not blocking: a pipe of that name would wait for a writer.
  explicit File(const std::string& path, int mode = O_RDONLY)
      : fd_(::open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool read_at(size_t offset, void* out, size_t bytes) const {
    auto* to = static_cast<char*>(out);
    while (bytes > 0) {
      const ssize_t got = ::pread(fd_, to, bytes, static_cast<off_t>(offset));
      if (got <= 0) return false;
      to += got;
      offset += static_cast<size_t>(got);
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }

 private:
  int fd_;
};

bool read_head(const File& file, Head* head, std::string* why) {
  const auto no = [&](const char* reason) {
    *why = reason;
    return false;
  };
  if (!file.is_open()) return no("no record file");
  struct stat status;
  if (::fstat(file.fd(), &status) != 0) return no("record file cannot be read");
  if (!S_ISREG(status.st_mode)) return no("not a record file: no regular file");
  if (!file.read_at(0, head, sizeof *head)) return no("record file without a head");
  if (head->magic != RecordHeader::kMagic) return no("not a record file, or one not finished");
  if (head->version != RecordHeader::kVersion) return no("record file of another version");
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (head->capacity == 0 || bytes < kRecordHeaderBytes ||
      head->capacity > (bytes - kRecordHeaderBytes) / sizeof(Event))
    return no("record file cut short");
  if (!is_a_time(head->clock_offset_ns) || !is_a_time(head->clock_uncertainty_ns) ||
      head->clock_uncertainty_ns < 0)
    return no("record file of a clock that cannot be");
  return true;
}

size_t offset_of(const Head& head, uint64_t index) {
  return kRecordHeaderBytes + (index % head.capacity) * sizeof(Event);
}

// Events first..last-1 in the order of appending, in at most two reads.
bool read_events(const File& file, const Head& head, uint64_t first, uint64_t last,
                 std::vector<Event>* events) {
  events->resize(last - first);
  const uint64_t until_end = std::min(last - first, head.capacity - first % head.capacity);
  const uint64_t rest = last - first - until_end;
  return file.read_at(offset_of(head, first), events->data(), until_end * sizeof(Event)) &&
         file.read_at(kRecordHeaderBytes, events->data() + until_end, rest * sizeof(Event));
}

bool have_times(std::vector<Event>* events, std::string* why) {
  const auto has_one = [](const Event& event) { return is_a_time(event.time_ns); };
  if (std::all_of(events->begin(), events->end(), has_one)) return true;
  *why = "record file with a time that no clock gives";
  events->clear();
  return false;
}

}  // namespace

bool read_records(const std::string& path, RankRecords* records, std::string* why) {
  *records = RankRecords{};
  const File file(path);
  Head head;
  if (!read_head(file, &head, why)) return false;
  records->rank = head.rank;
  records->world_size = head.world_size;
  records->clock_offset_ns = head.clock_offset_ns;
  records->clock_uncertainty_ns = head.clock_uncertainty_ns;
  const uint64_t first = head.appended > head.capacity ? head.appended - head.capacity : 0;
  if (head.appended - first > kMostEvents) {
    *why = "record file of more events than any run leaves";
    return false;
  }
  Head after;
  if (!read_events(file, head, first, head.appended, &records->events) ||
      !file.read_at(0, &after, sizeof after)) {
    *why = "record file cannot be read";
    records->events.clear();
    return false;
  }
  // What a live writer has overwritten while we read is not the oldest any more.
  const uint64_t kept = after.appended > after.capacity ? after.appended - after.capacity : 0;
  std::vector<Event>& events = records->events;
  const uint64_t overwritten = std::min<uint64_t>(kept > first ? kept - first : 0, events.size());
  events.erase(events.begin(), events.begin() + static_cast<ptrdiff_t>(overwritten));
  records->dropped = first + overwritten;
  std::erase_if(events, [](const Event& event) {
    return event.kind == static_cast<uint16_t>(EventKind::none);
  });
  return have_times(&events, why);
}

std::optional<RecordPulse> read_pulse(const std::string& path) {
  const File file(path);
  Head head;
  std::string why;
  if (!read_head(file, &head, &why)) return std::nullopt;
  RecordPulse pulse;
  pulse.appended = head.appended;
  Event event{};
  if (head.appended > 0 && file.read_at(offset_of(head, head.appended - 1), &event, sizeof event)) {
    pulse.newest_phase = static_cast<Phase>(event.phase);
    pulse.newest_ns = event.time_ns;
    pulse.newest_kind = static_cast<EventKind>(event.kind);
  }
  return pulse;
}

void mark_empty(const std::string& path) {
  const File file(path, O_WRONLY);
  const uint64_t none = 0;
  if (!file.is_open()) return;
  // A failure leaves old events, which the writer clears as well.
  [[maybe_unused]] const ssize_t written =
      ::pwrite(file.fd(), &none, sizeof none, offsetof(RecordHeader, appended));
}

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
