#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/lane.h"
#include "scenarios/base/phase.h"
#include "sim/record/core_wait.h"

namespace lockstep {

// The binary format of the flight recorder (docs/records.md). Numbers are part of the format:
// never reused, only added.

enum class EventKind : uint16_t {
  none = 0,
  phase_begin = 1,      // phase says which; subject -1; value: how long the rank's main thread has
                        // waited for a core so far, in ns (sim/record/core_wait.h)
  parameter_ready = 2,  // subject parameter
  bucket_ready = 3,     // subject bucket
  arrival = 4,          // sequence; subject bucket or -1; value pack_collective()
  end = 5,              // sequence; subject bucket or -1
  assigned = 6,         // subject parameter; value bucket << 32 | place
  state_hash = 7,       // subject StateKind; value: hash chained over all steps so far
  collective_hash = 8,  // value: hash chained over operation, bytes, dtype of all collectives
  compared = 9,         // subject Lane; value: tensors compared so far
  mismatch = 10,        // subject Lane; value: entry << 32 | low 32 bits of the element
  distance = 11,        // subject Lane; value: bits of the worst double so far; sequence: entry
  control = 12,         // subject Lane; value 1 detected, 0 missed
  statistic = 13,       // subject Lane; value: bits of R of this step; sequence: entry
  check = 14,           // subject Check; value 1 passed, 0 failed
  receipt = 15,         // a fault or mutant acts now: subject its index in the plan, of faults from
                        // kFirstFault on; value of a fault: its duration in ns, 0 where it has none
  final_hash_low = 16,
  final_hash_high = 17,
  differing = 18,     // subject Lane; value: differing << 32 | total elements
  primary_done = 19,  // the primary run has made all its steps
  finished = 20,      // this process has done all it had to
  error = 21,         // subject: CommFailure or -1; the text is in the evidence; value as of
                      // phase_begin
  step_end = 22,    // the step is done, optimizer included; value as of phase_begin; sequence: its
                    // process's other threads added up, in us, modulo 2^32
  double_run = 23,  // from here on events belong to the double run
  loss = 24,        // value: bits of this rank's own mean loss of the step, as a double
  launched = 25,    // a collective leaves this rank's queue for the wire: subject and sequence as
                    // of its arrival; without one it does so when it arrives
  // Where common checks are asked for, on rank 0; golden: the run on one device.
  golden_loss = 26,   // value: bits of its loss of the step, as a double
  norm_ratio = 27,    // value: bits of the norm of the run's gradients over the golden's
  close = 28,         // of the last step; value 1: weights as close as is asked for, else 0
  device_ready = 29,  // subject bucket; value: when its device had its gradients, in ns of this
                      // clock; sequence: give or take so many ns
};
inline constexpr int32_t kFirstFault = 1 << 16;

// The last three are in evidence alone: a step in which something was not the plan's.
enum class Check : int32_t {
  manifest = 1,
  absent_gradients,
  aliasing,
  checkpoint,
  samples,
  batch,
  accumulation
};
const char* to_word(Check check);

struct Event {
  int64_t time_ns;  // CLOCK_MONOTONIC
  uint32_t sequence;
  uint16_t kind;   // EventKind
  uint16_t phase;  // Phase, the one under way
  int32_t step;    // from 1; 0 before the first
  int32_t subject;
  uint64_t value;
};
static_assert(sizeof(Event) == 32);

// 36 years: what is farther from zero no clock of a machine gives, and two of them added or taken
// from each other are still numbers.
inline constexpr int64_t kFarthestNs = int64_t{1} << 60;
constexpr bool is_a_time(int64_t ns) { return ns >= -kFarthestNs && ns <= kFarthestNs; }

// operation and dtype as in reducer/probe.h and ATen's ScalarType; bytes below 2^48.
constexpr uint64_t pack_collective(uint8_t operation, uint8_t dtype, int64_t bytes) {
  return (uint64_t{operation} << 56) | (uint64_t{dtype} << 48) |
         (static_cast<uint64_t>(bytes) & ((uint64_t{1} << 48) - 1));
}
struct PackedCollective {
  uint8_t operation;
  uint8_t dtype;
  int64_t bytes;
};
constexpr PackedCollective unpack_collective(uint64_t value) {
  return {static_cast<uint8_t>(value >> 56), static_cast<uint8_t>(value >> 48),
          static_cast<int64_t>(value & ((uint64_t{1} << 48) - 1))};
}

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

  // Where other threads do the main one's work in turn: what one of them has waited counts as the
  // main one's.
  void add_core_wait(int64_t ns) noexcept { added_core_wait_ns_ += ns; }

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
  std::atomic<int64_t> added_core_wait_ns_{0};
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

// Where things stand in a record file.
inline constexpr size_t kRecordHeaderBytes = 4096;

// What the launcher asks a live record file, many times a second: two short reads.
struct RecordPulse {
  uint64_t appended = 0;
  Phase newest_phase{};   // of the newest event; 0 where there is none yet
  int64_t newest_ns = 0;  // its time
  EventKind newest_kind = EventKind::none;
};
// Nothing while the file is absent or unfinished.
std::optional<RecordPulse> read_pulse(const std::string& path);

// Makes an idle writer's file count as empty, so that nothing of an earlier run can be read as the
// next one's. Nothing happens where there is no such file.
void mark_empty(const std::string& path);

}  // namespace lockstep
