#include "sim/worker/replica_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>

#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"
#include "sim/plan/agreement.h"
#include "sim/worker/observer.h"

namespace lockstep {

// Zero bytes are a valid start: step 0 finds `released` at 0 in slot 0, step s at s / kSlots.
struct ReplicaBoard::Slot {
  std::atomic<int64_t> arrived;   // of the step under way in this slot
  std::atomic<int64_t> released;  // how many steps this slot has served
  char padding[48];
};

namespace {

constexpr size_t kHeadBytes = 4096;

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::system_error failure(const std::string& what) {
  return {errno, std::generic_category(), what};
}

std::byte* map(int fd, size_t bytes) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) throw failure("mmap of the replica board");
  return static_cast<std::byte*>(base);
}

int create_file(const std::string& path, size_t bytes) {
  const std::string unfinished = path + ".new";
  const int fd = open(unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) throw failure(unfinished);
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
    close(fd);
    errno = error;
    throw failure(unfinished);
  }
  if (rename(unfinished.c_str(), path.c_str()) != 0) {
    close(fd);
    throw failure(path);
  }
  return fd;
}

int wait_for_file(const std::string& path, Deadline deadline) {
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT || Clock::now() >= deadline) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

size_t ReplicaBoard::bytes_needed(int64_t world_size, int64_t state_bytes) {
  return kHeadBytes + static_cast<size_t>(kSlots * world_size * aligned(state_bytes));
}

std::unique_ptr<ReplicaBoard> ReplicaBoard::in_memory(int64_t world_size, int64_t state_bytes) {
  const size_t bytes = bytes_needed(world_size, state_bytes);
  return std::unique_ptr<ReplicaBoard>(
      new ReplicaBoard(map(-1, bytes), bytes, world_size, state_bytes));
}

std::unique_ptr<ReplicaBoard> ReplicaBoard::in_file(const std::string& path, int64_t rank,
                                                    int64_t world_size, int64_t state_bytes,
                                                    Deadline deadline) {
  const size_t bytes = bytes_needed(world_size, state_bytes);
  const int fd = rank == 0 ? create_file(path, bytes) : wait_for_file(path, deadline);
  if (fd < 0) return nullptr;
  std::byte* base = map(fd, bytes);
  close(fd);
  return std::unique_ptr<ReplicaBoard>(new ReplicaBoard(base, bytes, world_size, state_bytes));
}

ReplicaBoard::ReplicaBoard(std::byte* base, size_t mapped_bytes, int64_t world_size,
                           int64_t state_bytes)
    : base_(base),
      mapped_bytes_(mapped_bytes),
      world_size_(world_size),
      state_bytes_(aligned(state_bytes)) {}

ReplicaBoard::~ReplicaBoard() { munmap(base_, mapped_bytes_); }

ReplicaBoard::Slot& ReplicaBoard::slot(int64_t step) const {
  return reinterpret_cast<Slot*>(base_)[step % kSlots];
}

std::byte* ReplicaBoard::begin(int64_t rank, int64_t step, Deadline deadline) {
  LOCKSTEP_CHECK(rank < world_size_ && step >= 0, "no such place on the replica board");
  const int64_t turn = step / kSlots;
  while (slot(step).released.load(std::memory_order_acquire) != turn) {
    if (Clock::now() >= deadline) return nullptr;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return const_cast<std::byte*>(state(rank, step));
}

bool ReplicaBoard::arrive(int64_t step, int64_t ranks) {
  return slot(step).arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks;
}

const std::byte* ReplicaBoard::state(int64_t rank, int64_t step) const {
  return base_ + kHeadBytes + (step % kSlots * world_size_ + rank) * state_bytes_;
}

void ReplicaBoard::release(int64_t step) {
  slot(step).arrived.store(0, std::memory_order_relaxed);
  slot(step).released.fetch_add(1, std::memory_order_release);
}

// Ranks of which less is promised than of others do not lay down their states.
bool Observer::meets(int64_t step) const {
  return agreement_.between_ranks(step, context_.rank) == agreement_.most(step);
}

std::vector<int64_t> Observer::ranks_that_meet(int64_t step) const {
  std::vector<int64_t> ranks;
  const Agreement most = agreement_.most(step);
  for (int64_t rank = 0; rank < context_.plan.scenario.world_size; ++rank)
    if (agreement_.between_ranks(step, rank) == most) ranks.push_back(rank);
  return ranks;
}

// Of a step whose state is not compared: replicas' gradients by one hash, where they lie.
void Observer::pass_over(int64_t step) {
  state_ = nullptr;
  before_.clear();
  for (auto& feed : feeds_) skip_item(*feed, step);
  if (!primary_ || !context_.plan.hash_between) return;
  constexpr auto kGradient = static_cast<size_t>(StateKind::gradient);
  const uint64_t hash = hash_gradients(training_);
  chains_[kGradient] = hash64(&hash, sizeof hash, chains_[kGradient]);
  context_.recorder.append(EventKind::state_hash, kGradient, chains_[kGradient]);
}

int64_t Observer::board_step(int64_t step) const {
  return comparison_number(context_.plan, start_step_, step);
}

void Observer::meet_replicas(int64_t step) {
  const std::vector<int64_t> ranks = ranks_that_meet(step);
  if (state_ == own_state_.data() || !board_->arrive(board_step(step), std::ssize(ranks))) return;
  const StateLayout& part = part_of(agreement_.most(step));
  const std::byte* first = board_->state(ranks[0], board_step(step));
  std::optional<BitDifference> difference;
  std::vector<int64_t> differing;
  const std::byte* other_state = nullptr;
  const bool compares = agreement_.most(step) != Agreement::nothing;
  for (const int64_t rank : ranks) {
    if (replicas_differ_ || !compares) break;
    const std::byte* other = board_->state(rank, board_step(step));
    if (std::memcmp(first, other, static_cast<size_t>(layout_.bytes)) == 0) continue;
    const auto found = first_bit_difference(part, other, first);
    if (!found) continue;
    differing.push_back(rank);
    if (difference) continue;
    difference = found;
    other_state = other;
  }
  if (difference) {
    replicas_differ_ = true;
    MismatchContext at = context(Lane::replica, step, first, part);
    at.run = other_state;
    at.local = at.shards = nullptr;
    mismatch(Lane::replica, at, *difference);
    evidence_->mismatches.back().ranks = differing;
  }
  board_->release(board_step(step));
}

}  // namespace lockstep
