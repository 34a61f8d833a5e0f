#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "reducer/shm/shm_memory.h"

namespace lockstep {

// How the ranks of a group meet in shared memory. One thread, but for cancel().
//
// They meet again and again (meet()); what a rank wrote before a meeting, all read after it. A wait
// sleeps on a futex, and looks around every kTick: a peer that died, left or gave up, or the
// deadline, ends it with a CommError that names the rank to blame. After a failure there are no
// more meetings.
class ShmGroup {
 public:
  // Blocks until all ranks have come or the deadline has passed.
  ShmGroup(const CommOptions& options, Store& store, Deadline deadline);
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  int64_t rank() const { return rank_; }
  int64_t world_size() const { return world_size_; }
  const std::shared_ptr<ShmMemory>& memory() const { return memory_; }

  // What a rank says of a collective: all must say the same of it, `place` is its own.
  struct Call {
    static constexpr size_t kTextBytes = 112;
    char text[kTextBytes];
    int64_t place;
  };
  // First meeting of a collective. `what` describes it. Returns the ranks' places. Throws where
  // ranks call different collectives: rejected on those that differ from most, peer_lost on others.
  std::vector<int64_t> barrier_with_places(const std::string& what, int64_t place,
                                           Deadline deadline);
  void meet(Deadline deadline);

  // Two parts of memory that ranks fill in turn for the others to read. A rank may fill one after
  // the other with one meeting each: when it comes back to a part, all have read it.
  size_t staging_bytes() const { return staging_bytes_; }
  std::byte* staging(int64_t rank) const;
  void next_staging() { ++turn_; }

  // Ends a wait that is under way, and all later ones, with CommError(closed). Thread-safe.
  void cancel() { cancelled_ = true; }
  // Peers that wait for this rank learn that it will not come.
  void leave() noexcept;

  static constexpr std::chrono::milliseconds kTick{10};

 private:
  struct Rank;
  struct Control;
  static size_t control_bytes(int64_t world_size);
  Control& control() const;
  Rank& state(int64_t rank) const;
  bool is_over(uint32_t meeting) const;
  void wait_for_others(uint32_t meeting, Deadline deadline);
  void poll_peers(uint32_t meeting, Deadline deadline, bool ask_kernel);
  void throw_if_failed() const;
  std::vector<int64_t> missing(uint32_t meeting) const;
  [[noreturn]] void give_up(uint32_t cause, int64_t blamed, CommFailure kind,
                            const std::string& why, int64_t peer);
  std::string describe_failure(uint32_t cause, int64_t blamed) const;
  int64_t peer_of(uint32_t cause, int64_t blamed) const;
  void wake_all() const;
  void check_agreement(const std::vector<const Call*>& calls);

  const int64_t rank_;
  const int64_t world_size_;
  const RankNames numbers_;
  const std::shared_ptr<ShmMemory> memory_;
  const size_t staging_bytes_;
  const int64_t spins_;
  uint32_t meetings_ = 0;  // that this rank has come to
  uint64_t calls_ = 0;
  uint64_t turn_ = 0;
  std::atomic<bool> cancelled_{false};
};

}  // namespace lockstep
