#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/record/core_wait.h"
#include "sim/record/event.h"

namespace lockstep {

// Head of a record file, 4,096 bytes, followed by `capacity` events used as a ring.
struct RecordHeader {
  static constexpr uint64_t kMagic = 0x3130'5345'524b'434cULL;  // "LCKRES01"
  static constexpr uint32_t kVersion = 1;
  uint64_t magic;
  uint32_t version;
  int32_t rank;  // -1 for golden runs
  int32_t world_size;
  int32_t reserved;
  int64_t clock_offset_ns;  // to add for the launcher's clock
  int64_t clock_uncertainty_ns;
  uint64_t capacity;
  std::atomic<uint64_t> appended;  // all events ever; more than capacity: the oldest are gone
};

// Appends events to a memory-mapped file, so that they survive SIGKILL of the writer. append() is
// safe from any thread, takes tens of nanoseconds, never blocks, never allocates, never fails; a
// full file keeps the newest events.
class Recorder {
 public:
  // Creates (or empties) the file with room for `capacity` events, preallocated; throws
  // std::system_error (a full disk shows here).
  static std::unique_ptr<Recorder> create(const std::string& path, int32_t rank, int32_t world_size,
                                          uint64_t capacity);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Step and phase that later events carry; enter() records phase_begin as well.
  void set_step(int32_t step);
  void enter(Phase phase);
  void end_step();
  int32_t step() const { return step_.load(std::memory_order_relaxed); }
  Phase phase() const;

  void append(EventKind kind, int32_t subject = -1, uint64_t value = 0, uint32_t sequence = 0);

  // Phases and ends of steps that this thread, the rank's main one, records from now on carry how
  // long it has waited for a core.
  void measure_core_wait();

  uint64_t core_wait_ns() noexcept;  // of the thread that asked for it, so far; 0 where none did

  // Forgets all events (a host of many short runs uses one file again and again).
  void clear();

 private:
  Recorder(void* base, size_t mapped_bytes);
  RecordHeader* header_;
  Event* events_;
  size_t mapped_bytes_;
  std::atomic<int32_t> step_{0};
  std::atomic<uint16_t> phase_{0};
  std::unique_ptr<CoreWait> core_wait_;
};

// What a rank left behind, oldest event first.
struct RankRecords {
  int32_t rank = 0;
  int32_t world_size = 0;
  int64_t clock_offset_ns = 0;
  int64_t clock_uncertainty_ns = 0;
  uint64_t dropped = 0;
  std::vector<Event> events;
};
// Works while the writer is alive or after it was killed. An absent, short or foreign file gives
// false and `why`; a torn last event (kind none) is left out.
bool read_records(const std::string& path, RankRecords* records, std::string* why);
// A file that read_records() reads as these. Throws std::system_error.
void write_records(const std::string& path, const RankRecords& records);

}  // namespace lockstep
