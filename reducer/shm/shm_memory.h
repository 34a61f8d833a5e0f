#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "reducer/communicator.h"

namespace lockstep {

// The memory that the ranks of one group share, mapped by each of them: a control part, zero at
// first, and an arena a rank.
//
// Rank 0 makes it as a memfd and says where in the store; the others open it through
// /proc/PID/fd. That serves every launcher alike, needs no name that could collide, be guessed or
// be left behind (memory goes with its last process, whatever kills it), and no space in /dev/shm,
// of which containers have little. The kernel lets only processes of the same user open it; a
// random number at its head tells it from what another process has put in its place, and its size
// is sealed: nobody can take it from under the others.
//
// A rank holds a lock on a byte of it as long as its process lives; the kernel takes it away
// however the process ends, so that peers can ask (is_alive) without trusting process ids.
class ShmMemory {
 public:
  // Blocks until rank 0 has made it or the deadline has passed. Throws CommError: rejected where
  // rank 0's memory cannot be reached from here (another host, user or container).
  ShmMemory(const CommOptions& options, size_t control_bytes, Store& store, Deadline deadline);
  ~ShmMemory();
  ShmMemory(const ShmMemory&) = delete;
  ShmMemory& operator=(const ShmMemory&) = delete;

  std::byte* control() const { return base_ + kHeadBytes; }
  // The arena of a rank: kArenaBytes of addresses, of which those are backed that are in use.
  std::byte* arena(int64_t rank) const {
    return base_ + arenas_at_ + static_cast<size_t>(rank) * kArenaBytes;
  }
  // Whether a rank that has attached still lives. Of this rank: false.
  bool is_alive(int64_t rank) const;

  // Memory of this rank's arena, zeroed and a multiple of a page; nullptr where there is none left.
  // Thread-safe, as release() is.
  std::byte* take(size_t bytes);
  void release(std::byte* memory, size_t bytes);
  // Where in this rank's arena the bytes lie; nothing if they are not all in it.
  std::optional<size_t> place_of(const void* memory, size_t bytes) const;

  static constexpr size_t kArenaBytes = size_t{8} << 30;

 private:
  static constexpr size_t kHeadBytes = 4096;
  std::string make();
  void open_of(const std::string& where);
  void map();
  void lock_own_byte();

  const int64_t rank_;
  const int64_t world_size_;
  const RankNames numbers_;
  const size_t arenas_at_;
  const size_t bytes_;
  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::map<size_t, size_t> taken_;  // place -> bytes
};

}  // namespace lockstep
