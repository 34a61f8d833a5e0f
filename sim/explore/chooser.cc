#include "sim/explore/chooser.h"

#include <algorithm>
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

uint64_t ScheduleDraws::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

SeededChooser::SeededChooser(int64_t actors, int64_t decisions, std::optional<int64_t> preemptions)
    : actor_count_(actors),
      decisions_(std::max<int64_t>(1, decisions)),
      preemptions_(preemptions),
      priority_(static_cast<size_t>(actors)) {}

void SeededChooser::begin(uint64_t seed) {
  draws_ = ScheduleDraws(seed);
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

}  // namespace lockstep
