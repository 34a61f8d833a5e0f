#include "reducer/shm/shm_group.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "reducer/comm/collective.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr size_t kStagingBytesOfAll = size_t{8} << 20;
constexpr size_t kStagingBytesMin = size_t{64} << 10;
constexpr size_t kStagingBytesMax = size_t{1} << 20;

// Some 20 microseconds; none where a rank that spins keeps the one from running that it waits for.
constexpr int64_t kSpins = 400;

enum Cause : uint32_t { kNone, kTimedOut, kDied, kLeft, kDisagreed };

using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

uint32_t* futex_of(Word& word) { return reinterpret_cast<uint32_t*>(&word); }

// Without FUTEX_PRIVATE_FLAG: other processes map the word too.
void sleep_while(Word& word, uint32_t value, milliseconds longest) {
  const timespec time = {.tv_sec = longest.count() / 1000,
                         .tv_nsec = longest.count() % 1000 * 1'000'000};
  syscall(SYS_futex, futex_of(word), FUTEX_WAIT, value, &time, nullptr, 0);
}

int64_t spins_for(int64_t world_size) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
  return CPU_COUNT(&cores) >= world_size ? kSpins : 0;
}

void pause_a_moment() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// Zero bytes are a valid start. What one rank writes often has cache lines of its own.
struct alignas(128) ShmGroup::Rank {
  std::atomic<uint32_t> attached;
  std::atomic<uint32_t> left;
  std::atomic<uint32_t> meetings;  // that it has come to
  Call calls[2];                   // the newest and the one before
};

struct alignas(128) ShmGroup::Control {
  std::atomic<uint64_t> arrivals;  // at all meetings so far
  alignas(128) Word over;          // how many meetings all have come to; ranks sleep on it
  std::atomic<uint32_t> sleepers;
  std::atomic<uint64_t> failure;  // the first: cause and rank to blame; 0: none
};

size_t ShmGroup::control_bytes(int64_t world_size) {
  return sizeof(Control) + static_cast<size_t>(world_size) * sizeof(Rank);
}

ShmGroup::Control& ShmGroup::control() const {
  return *reinterpret_cast<Control*>(memory_->control());
}

ShmGroup::Rank& ShmGroup::state(int64_t rank) const {
  return reinterpret_cast<Rank*>(memory_->control() + sizeof(Control))[rank];
}

ShmGroup::ShmGroup(const CommOptions& options, Store& store, Deadline deadline)
    : rank_(options.rank),
      world_size_(options.world_size),
      numbers_(options.names),
      memory_(
          std::make_shared<ShmMemory>(options, control_bytes(options.world_size), store, deadline)),
      staging_bytes_(std::clamp(kStagingBytesOfAll / static_cast<size_t>(options.world_size) /
                                    kStagingBytesMin * kStagingBytesMin,
                                kStagingBytesMin, kStagingBytesMax)),
      spins_(spins_for(options.world_size)) {
  // The first that is taken of an arena lies at its begin.
  if (memory_->take(2 * staging_bytes_) != memory_->arena(rank_))
    throw CommError(CommFailure::rejected, "connecting over shared memory: there is none left");
  state(rank_).attached = 1;
  try {
    meet(deadline);
  } catch (const CommError& error) {
    leave();
    throw CommError(
        error.kind(),
        "connecting " + std::to_string(world_size_) + " ranks over shared memory: " + error.what(),
        error.facts());
  }
}

ShmGroup::~ShmGroup() { leave(); }

std::byte* ShmGroup::staging(int64_t rank) const {
  return memory_->arena(rank) + turn_ % 2 * staging_bytes_;
}

void ShmGroup::leave() noexcept {
  state(rank_).left = 1;
  wake_all();
}

void ShmGroup::wake_all() const {
  syscall(SYS_futex, futex_of(control().over), FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr,
          nullptr, 0);
}

bool ShmGroup::is_over(uint32_t meeting) const {
  return static_cast<int32_t>(control().over.load() - meeting) >= 0;
}

// The last to come says that the meeting is over: in one place, so that others wait for one word
// and are woken once.
void ShmGroup::meet(Deadline deadline) {
  if (cancelled_) throw CommError(CommFailure::closed, "closed");
  throw_if_failed();  // who comes late must not go on alone
  const uint32_t meeting = ++meetings_;
  state(rank_).meetings.store(meeting, std::memory_order_release);
  Control& group = control();
  const auto ranks = static_cast<uint64_t>(world_size_);
  if ((group.arrivals.fetch_add(1) + 1) % ranks != 0) return wait_for_others(meeting, deadline);
  group.over.store(meeting);
  if (group.sleepers.load() > 0) wake_all();
}

void ShmGroup::wait_for_others(uint32_t meeting, Deadline deadline) {
  for (int64_t i = 0; i < spins_; ++i) {
    if (is_over(meeting)) return;
    pause_a_moment();
  }
  Control& group = control();
  bool slept_long = false;
  while (true) {
    const uint32_t over = group.over.load();
    if (static_cast<int32_t>(over - meeting) >= 0) return;
    poll_peers(meeting, deadline, slept_long);
    const milliseconds longest = std::min(kTick, time_left(deadline));
    const Deadline tick = deadline_after(longest);
    // Counted before the word is looked at again: who changes it afterwards sees the sleeper.
    group.sleepers.fetch_add(1);
    sleep_while(group.over, over, longest);
    group.sleepers.fetch_sub(1);
    slept_long = Clock::now() >= tick;
  }
}

std::vector<int64_t> ShmGroup::missing(uint32_t meeting) const {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < world_size_; ++r)
    if (static_cast<int32_t>(state(r).meetings.load() - meeting) < 0) ranks.push_back(r);
  return ranks;
}

// Each finding counts only if the meeting is not over by then.
void ShmGroup::poll_peers(uint32_t meeting, Deadline deadline, bool ask_kernel) {
  const std::vector<int64_t> late = missing(meeting);
  const auto gone =
      std::find_if(late.begin(), late.end(), [&](int64_t r) { return state(r).left.load() != 0; });
  int64_t dead = -1;
  for (int64_t r = 0; ask_kernel && r < world_size_; ++r) {
    const bool expected = r != rank_ && state(r).attached.load() != 0;
    if (expected && !memory_->is_alive(r) && state(r).left.load() == 0) dead = r;
  }
  const bool out_of_time = Clock::now() >= deadline;
  if (is_over(meeting)) return;
  if (cancelled_) throw CommError(CommFailure::closed, "closed");
  throw_if_failed();
  if (gone != late.end())
    give_up(kLeft, *gone, CommFailure::peer_lost, describe_failure(kLeft, *gone),
            numbers_.of(*gone));
  if (dead >= 0)
    give_up(kDied, dead, CommFailure::peer_lost, describe_failure(kDied, dead), numbers_.of(dead));
  if (out_of_time && !late.empty())
    give_up(kTimedOut, late.front(), CommFailure::timeout,
            "timed out waiting for " + named_ranks(late, numbers_),
            late.size() == 1 ? numbers_.of(late.front()) : -1);
}

// What the others learn of the failure that one rank has noticed.
std::string ShmGroup::describe_failure(uint32_t cause, int64_t blamed) const {
  const std::string rank = named_ranks({blamed}, numbers_);
  if (cause == kTimedOut) return "a peer timed out waiting for " + rank;
  if (cause == kDied) return rank + " has died";
  if (cause == kLeft) return rank + " left the group";
  return "peers call different collectives";
}

int64_t ShmGroup::peer_of(uint32_t cause, int64_t blamed) const {
  return cause == kDisagreed ? -1 : numbers_.of(blamed);
}

void ShmGroup::throw_if_failed() const {
  const uint64_t failure = control().failure.load();
  if (failure == 0) return;
  const auto cause = static_cast<uint32_t>(failure >> 32), blamed = static_cast<uint32_t>(failure);
  throw CommError(CommFailure::peer_lost, describe_failure(cause, blamed),
                  {.peer = peer_of(cause, blamed)});
}

void ShmGroup::give_up(uint32_t cause, int64_t blamed, CommFailure kind, const std::string& why,
                       int64_t peer) {
  uint64_t none = 0;
  control().failure.compare_exchange_strong(none,
                                            uint64_t{cause} << 32 | static_cast<uint64_t>(blamed));
  wake_all();
  throw CommError(kind, why, {.peer = peer});
}

std::vector<int64_t> ShmGroup::barrier_with_places(const std::string& what, int64_t place,
                                                   Deadline deadline) {
  const uint64_t slot = ++calls_ % 2;
  Call& own = state(rank_).calls[slot];
  std::memset(own.text, 0, sizeof own.text);
  what.copy(own.text, sizeof own.text - 1);
  own.place = place;
  meet(deadline);
  std::vector<const Call*> calls;
  std::vector<int64_t> places;
  for (int64_t r = 0; r < world_size_; ++r) {
    calls.push_back(&state(r).calls[slot]);
    places.push_back(calls.back()->place);
  }
  check_agreement(calls);
  return places;
}

void ShmGroup::check_agreement(const std::vector<const Call*>& calls) {
  const auto as_first = [&](const Call* call) {
    return std::string_view(call->text) == std::string_view(calls.front()->text);
  };
  if (std::all_of(calls.begin(), calls.end(), as_first)) return;  // without copies: it is hot
  std::vector<std::string> texts;
  for (const Call* call : calls) texts.emplace_back(call->text);
  int64_t most = 0;
  const size_t usual = most_common(texts, &most);
  const auto own = static_cast<size_t>(rank_);
  // Where there is no majority nobody can say who is wrong.
  if (2 * most <= world_size_)
    give_up(kDisagreed, rank_, CommFailure::rejected,
            "peers call different collectives; this one " + texts[own], -1);
  for (size_t r = 0; r < texts.size(); ++r) {
    if (texts[r] == texts[usual] || (r != own && texts[own] != texts[usual])) continue;
    give_up(kDisagreed, static_cast<int64_t>(r),
            r == own ? CommFailure::rejected : CommFailure::peer_lost,
            named_ranks({static_cast<int64_t>(r)}, numbers_) + " calls " + texts[r] +
                ", most ranks call " + texts[usual],
            numbers_.of(static_cast<int64_t>(r)));
  }
}

}  // namespace lockstep
