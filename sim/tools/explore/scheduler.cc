#include "sim/tools/explore/scheduler.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <numeric>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostPoints = 3;  // of a seed that says nothing of them

}  // namespace

size_t ScriptedChooser::choose(const std::vector<Actor>&, const Choice& choice) {
  const int64_t here = decision_++;
  if (next_ == script_.size() || script_[next_].first != here) return choice.usual;
  const uint16_t taken = script_[next_++].second;
  return taken < choice.count ? taken : choice.usual;
}

Script script_of(const std::vector<Choice>& choices) {
  Script script;
  for (size_t i = 0; i < choices.size(); ++i)
    if (choices[i].taken != choices[i].usual)
      script.emplace_back(static_cast<int64_t>(i), choices[i].taken);
  return script;
}

int64_t preemptions_of(const std::vector<Choice>& choices) {
  return std::count_if(choices.begin(), choices.end(),
                       [](const Choice& one) { return one.preempts && one.taken != one.usual; });
}

SeededChooser::SeededChooser(int64_t actors, int64_t decisions, std::optional<int64_t> preemptions)
    : actor_count_(actors),
      decisions_(std::max<int64_t>(1, decisions)),
      preemptions_(preemptions),
      priority_(static_cast<size_t>(actors)) {}

void SeededChooser::begin(uint64_t seed) {
  draws_ = SplitMix64(seed);
  decision_ = 0;
  lowest_ = 0;
  uniform_ = !preemptions_ && draws_.below(2) == 0;
  if (uniform_) return;
  const uint64_t points =
      preemptions_ ? static_cast<uint64_t>(*preemptions_) : draws_.below(kMostPoints + 1);
  points_.clear();
  for (uint64_t i = 0; i < points; ++i)
    points_.push_back(static_cast<int64_t>(draws_.below(static_cast<uint64_t>(decisions_))));
  std::iota(priority_.begin(), priority_.end(), 1);
  for (size_t i = priority_.size(); i > 1; --i)
    std::swap(priority_[i - 1], priority_[draws_.below(i)]);
}

size_t SeededChooser::choose(const std::vector<Actor>& actors, const Choice& choice) {
  if (uniform_ || actors.empty()) return draws_.below(choice.count);
  const int64_t here = decision_++;
  size_t best = by_priority(actors);
  if (std::find(points_.begin(), points_.end(), here) == points_.end()) return best;
  priority_[static_cast<size_t>(actors[best])] = --lowest_;
  return by_priority(actors);
}

size_t SeededChooser::by_priority(const std::vector<Actor>& actors) {
  size_t best = 0;
  for (size_t i = 1; i < actors.size(); ++i)
    if (priority_[static_cast<size_t>(actors[i])] > priority_[static_cast<size_t>(actors[best])])
      best = i;
  return best;
}

int64_t ExhaustiveChooser::spent(size_t nodes) const {
  int64_t count = 0;
  for (size_t i = 0; i < nodes; ++i)
    count += path_[i].choice.preempts && path_[i].choice.taken != path_[i].choice.usual;
  return count;
}

bool ExhaustiveChooser::advance() {
  path_.resize(depth_);  // a schedule that ended early leaves nothing behind it
  depth_ = 0;
  for (; !path_.empty(); path_.pop_back()) {
    Node& last = path_.back();
    const bool may = !last.choice.preempts || spent(path_.size() - 1) < preemptions_;
    if (!may || last.tried == last.choice.count) continue;
    // The usual one was first; then all others, ascending.
    uint16_t next = last.tried == 1 ? 0 : static_cast<uint16_t>(last.choice.taken + 1);
    if (next == last.choice.usual) ++next;
    last.choice.taken = next;
    ++last.tried;
    return true;
  }
  return false;
}

size_t ExhaustiveChooser::choose(const std::vector<Actor>&, const Choice& choice) {
  if (depth_ == path_.size()) {
    path_.push_back({choice, 1});
    path_.back().choice.taken = choice.usual;
  }
  const Choice& here = path_[depth_++].choice;
  LOCKSTEP_CHECK(here.count == choice.count && here.usual == choice.usual,
                 "a schedule is not the same the second time");
  return here.taken;
}

namespace {

void futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}

void settle(int64_t rank, int cpu) {
  pthread_setname_np(pthread_self(), fmt::format("lockstep-r{}", rank).c_str());
  if (cpu < 0) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(cpu), &only);
  sched_setaffinity(0, sizeof only, &only);  // where it may not, it is slower
}

}  // namespace

void Scheduler::Baton::give() {
  given_.store(1, std::memory_order_release);
  futex(&given_, FUTEX_WAKE_PRIVATE, 1);
}

void Scheduler::Baton::take() {
  while (given_.load(std::memory_order_acquire) == 0) futex(&given_, FUTEX_WAIT_PRIVATE, 0);
  given_.store(0, std::memory_order_relaxed);
}

Scheduler::Scheduler(int64_t ranks, int cpu) : ranks_(static_cast<size_t>(ranks)) {
  for (int64_t rank = 0; rank < ranks; ++rank)
    ranks_[static_cast<size_t>(rank)].thread = std::thread([this, rank, cpu] { live(rank, cpu); });
}

Scheduler::~Scheduler() {
  ends_ = true;
  for (Rank& rank : ranks_) {
    rank.baton.give();
    rank.thread.join();
  }
}

void Scheduler::live(int64_t rank, int cpu) {
  settle(rank, cpu);
  Rank& self = ranks_[static_cast<size_t>(rank)];
  for (;;) {
    self.baton.take();
    if (ends_) return;
    if (!over_) do_body(rank);
    self.ended = true;
    const int64_t next = next_rank(rank);
    (next == kDriver ? driver_ : ranks_[static_cast<size_t>(next)].baton).give();
  }
}

void Scheduler::do_body(int64_t rank) {
  try {
    (*body_)(rank);
    if (traced_) note(rank, "ends");
  } catch (const ScheduleOver&) {
  } catch (const std::exception& error) {
    const std::string text = error.what();
    fail({"error", rank, step(rank), text.substr(0, text.find('\n'))});
  }
}

std::optional<ScheduleFailure> Scheduler::run(Chooser& chooser, Deliveries& deliveries,
                                              const std::function<void(int64_t)>& body,
                                              bool traced) {
  chooser_ = &chooser;
  deliveries_ = &deliveries;
  body_ = &body;
  traced_ = traced;
  over_ = false;
  points_ = 0;
  failure_.reset();
  choices_.clear();
  acts_.clear();
  for (Rank& rank : ranks_) {
    rank.ended = false;
    rank.waits = nullptr;
    rank.step = 0;
  }
  ranks_[static_cast<size_t>(next_rank(kDriver))].baton.give();
  driver_.take();
  return std::move(failure_);
}

void Scheduler::reach(int64_t rank) {
  ++points_;
  hand_over(rank, next_rank(rank));
  if (over_) throw ScheduleOver();
}

void Scheduler::block(int64_t rank, const bool& released, const char* waits_for) {
  Rank& self = ranks_[static_cast<size_t>(rank)];
  if (over_) throw ScheduleOver();
  if (released) return;
  self.waits = &released;
  self.waits_for = waits_for;
  hand_over(rank, next_rank(rank));
  self.waits = nullptr;
  if (over_) throw ScheduleOver();
  LOCKSTEP_CHECK(released, "a rank that waits was let go");
}

void Scheduler::hand_over(int64_t from, int64_t to) {
  if (from == to) return;
  Rank& self = ranks_[static_cast<size_t>(from)];
  ranks_[static_cast<size_t>(to)].baton.give();
  self.baton.take();
}

// Lets deliveries happen until a rank is to go on: `current` is the one that has the token.
int64_t Scheduler::next_rank(int64_t current) {
  const auto size = static_cast<Actor>(ranks_.size());
  for (;;) {
    if (over_) return any_unended();
    const Actor actor = decide(current);
    if (actor < size) return actor;  // kDriver too
    if (traced_) note(actor - size, "is delivered " + deliveries_->next_delivery(actor - size));
    deliveries_->deliver(actor - size);
  }
}

int64_t Scheduler::any_unended() const {
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks_[r].ended) return static_cast<int64_t>(r);
  return kDriver;
}

Actor Scheduler::decide(int64_t current) {
  const auto size = static_cast<Actor>(ranks_.size());
  ready_.clear();
  Choice choice;
  for (Actor r = 0; r < size; ++r) {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    if (rank.ended || (rank.waits != nullptr && !*rank.waits)) continue;
    if (r == current) {
      choice.usual = static_cast<uint16_t>(ready_.size());
      choice.preempts = true;
    }
    ready_.push_back(r);
  }
  const bool all_ended = ready_.empty() && any_unended() == kDriver;
  if (all_ended) return kDriver;
  for (Actor r = 0; r < size; ++r)
    if (deliveries_->can_deliver(r)) ready_.push_back(size + r);
  if (ready_.empty()) {
    fail_deadlocked();
    return static_cast<Actor>(any_unended());
  }
  if (ready_.size() == 1) return ready_.front();
  choice.count = static_cast<uint16_t>(ready_.size());
  choice.taken = static_cast<uint16_t>(chooser_->choose(ready_, choice));
  choices_.push_back(choice);
  return ready_[choice.taken];
}

size_t Scheduler::pick(size_t count) {
  if (count < 2 || over_) return 0;
  static const std::vector<Actor> kNobody;
  Choice choice{.count = static_cast<uint16_t>(count)};
  choice.taken = static_cast<uint16_t>(chooser_->choose(kNobody, choice));
  choices_.push_back(choice);
  return choice.taken;
}

void Scheduler::fail(ScheduleFailure failure) {
  over_ = true;
  if (failure_) return;
  if (traced_ && failure.rank >= 0) note(failure.rank, failure.kind + ": " + failure.what);
  failure_ = std::move(failure);
}

void Scheduler::fail_deadlocked() {
  std::string text;
  int64_t first = -1;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!text.empty()) text += ", ";
    text += ranks_[r].ended ? fmt::format("rank {} has ended", r)
                            : fmt::format("rank {} waits for {} in step {}", r, ranks_[r].waits_for,
                                          ranks_[r].step);
    if (first < 0 && !ranks_[r].ended) first = static_cast<int64_t>(r);
  }
  fail({"deadlock", first, ranks_[static_cast<size_t>(first)].step, "nobody can go on: " + text});
}

void Scheduler::note(int64_t rank, std::string operation) {
  acts_.push_back({rank, step(rank), std::move(operation)});
}

}  // namespace lockstep
