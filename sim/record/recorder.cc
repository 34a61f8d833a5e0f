#include "sim/record/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"
#include "sim/record/layout.h"

namespace lockstep {
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
  return core_wait_ ? static_cast<uint64_t>(core_wait_->own_ns()) : 0;
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

}  // namespace lockstep
