#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "scenarios/base/clock.h"

namespace lockstep {

// Shared memory in which the ranks of one run lay down their states after each step, so that the
// one who arrives last compares them all on the spot: a re-run might not show a race again. A ring
// of kSlots steps; nobody waits unless a rank is that many steps behind. Between processes (a file
// in the run directory made by rank 0) or threads. Steps count from 0 (before the first).
class ReplicaBoard {
 public:
  static constexpr int64_t kSlots = 4;
  // States beyond this are compared by their hashes in the records alone.
  static constexpr int64_t kStateBytesMax = 4 << 20;

  static std::unique_ptr<ReplicaBoard> in_memory(int64_t world_size, int64_t state_bytes);
  // Rank 0 creates the file, the others wait for it: nullptr past the deadline. Throws
  // std::system_error where the file cannot be made.
  static std::unique_ptr<ReplicaBoard> in_file(const std::string& path, int64_t rank,
                                               int64_t world_size, int64_t state_bytes,
                                               Deadline deadline);
  ~ReplicaBoard();
  ReplicaBoard(const ReplicaBoard&) = delete;
  ReplicaBoard& operator=(const ReplicaBoard&) = delete;

  // Where rank `rank` puts its state after `step`; nullptr if the slot was not free in time.
  std::byte* begin(int64_t rank, int64_t step, Deadline deadline);
  // The state is there. True for the last of `ranks` ranks that arrive: it may look at all their
  // states of this step with state(), and must call release(step) then.
  bool arrive(int64_t step, int64_t ranks);
  const std::byte* state(int64_t rank, int64_t step) const;
  void release(int64_t step);

 private:
  struct Slot;
  ReplicaBoard(std::byte* base, size_t mapped_bytes, int64_t world_size, int64_t state_bytes);
  static size_t bytes_needed(int64_t world_size, int64_t state_bytes);
  Slot& slot(int64_t step) const;

  std::byte* base_;
  size_t mapped_bytes_;
  int64_t world_size_;
  int64_t state_bytes_;
};

}  // namespace lockstep
