#include "sim/tools/explain/late_arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "scenarios/base/text.h"
#include "sim/tools/explain/arrival_runs.h"
#include "sim/tools/explain/arrival_steps.h"
#include "sim/tools/explain/late_chain.h"
#include "sim/tools/explain/stages.h"

namespace lockstep {
namespace {

// Of a group so many collectives are looked at, the newest, and fewer where it has many ranks.
constexpr size_t kMostCollectives = 8192, kLeastKept = 64, kMostArrivals = 16'000'000;
constexpr double kLeastSlowdown = 1.08;
constexpr double kLeastLateMs = 1;        // less is what a busy core does to any rank
constexpr double kStepsLate = 0.8;        // of all steps
constexpr double kClearlyLate = 0.4;      // of its median lateness, in each of those
constexpr double kInTime = 0.35;          // of its lateness: what counts as none
constexpr size_t kLeastOutside = 4;       // collectives outside of the steps
constexpr double kTrimmed = 0.1;          // of the steps, at either end: a hiccup is no lateness
constexpr double kLeastDeviations = 4.1;  // of a normal distribution: a chance of 1 in 50,000

// What one dump holds of a group, oldest first.
struct Member {
  const FlightDump* dump;
  std::vector<const FlightEntry*> entries;
};

// Of the newest sequence numbers of the first member, entries by member; null where one has none.
std::map<int64_t, std::vector<const FlightEntry*>> by_sequence(const std::vector<Member>& members) {
  const size_t most = std::clamp(kMostArrivals / members.size(), kLeastKept, kMostCollectives);
  std::map<int64_t, std::vector<const FlightEntry*>> found;
  for (const FlightEntry* entry : members.front().entries) {
    found[entry->sequence];
    if (found.size() > most) found.erase(found.begin());
  }
  for (size_t member = 0; member < members.size(); ++member)
    for (const FlightEntry* entry : members[member].entries) {
      const auto at = found.find(entry->sequence);
      if (at == found.end()) continue;
      at->second.resize(members.size(), nullptr);
      at->second[member] = entry;
    }
  return found;
}

GroupArrivals arrivals_of(const std::string& name, const std::vector<Member>& members) {
  GroupArrivals group;
  group.name = name;
  for (const Member& member : members) group.ranks.push_back(member.dump->rank);
  const auto& groups = members.front().dump->groups;
  if (const auto at = groups.find(name); at != groups.end())
    group.description = at->second.description;
  int64_t begin_ns = 0;
  std::map<std::array<std::string_view, 3>, size_t> kinds;
  for (const auto& [sequence, entries] : by_sequence(members)) {
    if (std::find(entries.begin(), entries.end(), nullptr) != entries.end()) continue;
    const FlightEntry& first = *entries.front();
    if (begin_ns == 0) begin_ns = first.created_ns;
    group.calls.push_back(&first);
    group.kinds.push_back(
        kinds.try_emplace({first.operation, first.sizes, first.dtypes}, kinds.size())
            .first->second);
    std::vector<double>& came = group.came_ms.emplace_back();
    for (const FlightEntry* entry : entries)
      came.push_back(static_cast<double>(entry->created_ns - begin_ns) * 1e-6);
    group.entries.push_back(entries);
  }
  return group;
}

// Were it chance that values are above zero on average, how rare: as many standard deviations of a
// normal distribution. Of a trimmed mean by Yuen's variance (1974), Student's distribution by
// Wallace's approximation (1959).
double deviations_above_zero(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto cut = static_cast<size_t>(kTrimmed * count);
  const double low = values[cut], high = values[values.size() - 1 - cut];
  double trimmed_sum = 0, winsorized_sum = 0, squares = 0;
  for (const double value : values) winsorized_sum += std::clamp(value, low, high);
  for (const double value : values)
    squares += std::pow(std::clamp(value, low, high) - winsorized_sum / count, 2);
  for (size_t i = cut; i < values.size() - cut; ++i) trimmed_sum += values[i];
  const double left = count - 2 * static_cast<double>(cut), freedom = left - 1;
  const double mean = trimmed_sum / left, error = std::sqrt(squares / (left * freedom));
  if (mean <= 0) return 0;
  if (error <= 0) return std::numeric_limits<double>::infinity();
  return std::sqrt(freedom * std::log1p(std::pow(mean / error, 2) / freedom)) * (8 * freedom + 1) /
         (8 * freedom + 3);
}

// Where nobody is named, nobody is known to have waited.
void doubt(const RankSet& others, const std::string& why, FlightFinding* finding) {
  leave_undecided(others, why, finding);
  finding->victims.clear();
}

class LateArrivals {
 public:
  LateArrivals(const GroupArrivals& group, const Steps& steps, bool clocks_agree)
      : group_(group),
        steps_(steps),
        clocks_agree_(clocks_agree),
        usual_ms_(steps.calls),
        late_(steps.calls) {
    for (const std::vector<double>& came : group.came_ms) middle_ms_.push_back(middle(came));
    for (size_t place = 0; place < steps.calls; ++place)
      for (size_t rank = 0; rank < group.ranks.size(); ++rank) look_at(place, rank);
    for (size_t place = 0; place < steps.calls; ++place)
      for (size_t rank = 0; rank < group.ranks.size(); ++rank)
        late_[place].push_back(is_late(place, rank));
  }

  void tell(FlightFinding* finding) const {
    if (step_ms_ > 0 &&
        lateness_ms_ >= step_ms_) {  // of ranks that wait for each other: no lateness, but a clock
      if (!clocks_agree_)
        finding->evidence.push_back(
            fmt::format("clocks differ (rank {} by {:.0f} ms, more than a step), so they do not "
                        "show which rank is late",
                        group_.ranks[rank_], lateness_ms_));
      return;
    }
    const std::vector<bool> is_late_here = keep_others_waiting();
    const std::vector<double> last_ms = last_in_time(is_late_here);
    RankSet late, unsure, elsewhere, by_chance;
    for (size_t rank = 0; rank < group_.ranks.size(); ++rank) {
      const int64_t name = group_.ranks[rank];
      if (is_late_here[rank] && has_waited(place_, rank)) continue;
      if (is_late_here[rank] && deviations_above_zero(waits(rank, last_ms)) < kLeastDeviations)
        by_chance.insert(name);
      else if (is_late_here[rank])
        (has_known_clock(rank) ? late : unsure).insert(name);
      else if (is_late_anywhere(rank))
        elsewhere.insert(name);
    }
    if (late.empty() && unsure.empty() && by_chance.empty()) return;
    write(!late.empty() ? late : !unsure.empty() ? unsure : by_chance, finding);
    doubt_few_steps(by_chance, finding);
    doubt_who_is_late(late.size() + unsure.size() + by_chance.size(), finding);
    doubt_queued_calls(finding);
    if (!unsure.empty())
      doubt(unsure,
            fmt::format("whether clocks agree: {} came equally late to every collective of a step, "
                        "as if a clock were ahead",
                        rank_list(unsure)),
            finding);
    if (!elsewhere.empty())
      doubt(
          elsewhere,
          fmt::format("which rank makes a step long: {} came late to other collectives of the step",
                      rank_list(elsewhere)),
          finding);
  }

 private:
  double lateness(size_t collective, size_t rank) const {
    return group_.came_ms[collective][rank] - middle_ms_[collective];
  }

  std::vector<double> latenesses(size_t place, size_t rank) const {
    std::vector<double> all;
    for (size_t step = 0; step < steps_.steps; ++step)
      all.push_back(lateness(steps_.begin + step * steps_.calls + place, rank));
    return all;
  }

  double step_ms(size_t place) const {
    std::vector<double> all;
    const auto last = [&](size_t step) {
      const auto& came = group_.came_ms[steps_.begin + step * steps_.calls + place];
      return *std::max_element(came.begin(), came.end());
    };
    for (size_t step = 1; step < steps_.steps; ++step) all.push_back(last(step) - last(step - 1));
    return middle(all);
  }

  void look_at(size_t place, size_t rank) {
    const double late_ms = middle(latenesses(place, rank));
    usual_ms_[place].push_back(late_ms);
    if (late_ms <= lateness_ms_) return;
    place_ = place;
    rank_ = rank;
    lateness_ms_ = late_ms;
    step_ms_ = step_ms(place);
  }

  bool is_late(size_t place, size_t rank) const {
    const double usual = usual_ms_[place][rank];
    if (usual < kLeastLateMs || usual >= step_ms_ || step_ms_ / (step_ms_ - usual) < kLeastSlowdown)
      return false;
    const std::vector<double> all = latenesses(place, rank);
    const auto clearly = std::count_if(all.begin(), all.end(),
                                       [&](double ms) { return ms >= kClearlyLate * usual; });
    return static_cast<double>(clearly) >= kStepsLate * static_cast<double>(all.size());
  }

  // At place_. Who is late, but no later than another that is not, keeps nobody waiting.
  std::vector<bool> keep_others_waiting() const {
    const std::vector<double> last_ms = last_in_time(late_[place_]);
    std::vector<bool> late = late_[place_];
    for (size_t rank = 0; rank < late.size(); ++rank)
      late[rank] = late[rank] && middle(waits(rank, last_ms)) > 0;
    return late;
  }

  double came_ms(size_t step, size_t rank) const {
    return group_.came_ms[steps_.begin + step * steps_.calls + place_][rank];
  }

  // By step: when the last of those that are not late comes to place_.
  std::vector<double> last_in_time(const std::vector<bool>& late) const {
    std::vector<double> last(steps_.steps, -std::numeric_limits<double>::infinity());
    for (size_t step = 0; step < steps_.steps; ++step)
      for (size_t rank = 0; rank < late.size(); ++rank)
        if (!late[rank]) last[step] = std::max(last[step], came_ms(step, rank));
    return last;
  }

  // By step: how long that one waits for the rank.
  std::vector<double> waits(size_t rank, const std::vector<double>& last_ms) const {
    std::vector<double> all;
    for (size_t step = 0; step < steps_.steps; ++step)
      all.push_back(came_ms(step, rank) - last_ms[step]);
    return all;
  }

  void doubt_few_steps(const RankSet& by_chance, FlightFinding* finding) const {
    if (by_chance.empty()) return;
    doubt(by_chance,
          fmt::format("more steps: in these {}, {} may have come late by chance", steps_.steps,
                      rank_list(by_chance)),
          finding);
  }

  // The place after a pause that is clearly the longest, or else where the steps were found to
  // begin.
  size_t first_of_step() const {
    constexpr double kClearly = 1.5;
    std::vector<std::vector<double>> pauses(steps_.calls);
    for (size_t i = steps_.begin + 1; i < steps_.begin + steps_.steps * steps_.calls; ++i)
      pauses[(i - steps_.begin) % steps_.calls].push_back(middle_ms_[i] - middle_ms_[i - 1]);
    std::vector<std::pair<double, size_t>> longest;
    for (size_t place = 0; place < steps_.calls; ++place)
      longest.emplace_back(middle(pauses[place]), place);
    std::sort(longest.rbegin(), longest.rend());
    const bool clear = longest.size() == 1 || longest[0].first > kClearly * longest[1].first;
    return clear ? longest[0].second : 0;
  }

  void doubt_queued_calls(FlightFinding* finding) const {
    if (clocks_agree_ || group_.calls.front()->gloo || finding->guilty.empty()) return;
    const size_t first = first_of_step();
    RankSet queued;
    for (size_t rank = 0; rank < group_.ranks.size(); ++rank)
      if (finding->guilty.contains(group_.ranks[rank]) &&
          usual_ms_[first][rank] > kInTime * usual_ms_[place_][rank])
        queued.insert(group_.ranks[rank]);
    if (queued.empty()) return;
    doubt(queued,
          fmt::format("whether any rank waits for {}: late to the first call of a step, like a "
                      "rank that waits for its GPU in each step (loss.item()) while the others "
                      "queue their calls; traces of torch.profiler would tell",
                      rank_list(queued)),
          finding);
  }

  // Of two ranks, one is named.
  void doubt_who_is_late(size_t late, FlightFinding* finding) const {
    if (late == 1 || late * 2 < group_.ranks.size()) return;
    doubt(finding->guilty,
          fmt::format("which of the {} ranks of group {} are normal: half of them were late",
                      group_.ranks.size(), group_.name),
          finding);
  }

  // For a late rank, in the collective before: who came in time to one that does not synchronize
  // all ranks, as a broadcast by a tree, and late out of it.
  bool has_waited(size_t place, size_t rank) const {
    if (steps_.calls < 2) return false;
    const size_t before = (place + steps_.calls - 1) % steps_.calls;
    const std::string& operation = group_.calls[steps_.begin + before]->operation;
    if (operation != "broadcast" && operation != "reduce" && operation != "gather" &&
        operation != "scatter")
      return false;
    if (std::abs(usual_ms_[before][rank]) > kInTime * usual_ms_[place][rank]) return false;
    const auto late = std::count(late_[before].begin(), late_[before].end(), true);
    return late > (late_[before][rank] ? 1 : 0);
  }

  bool is_late_anywhere(size_t rank) const {
    for (size_t place = 0; place < steps_.calls; ++place)
      if (late_[place][rank] && !has_waited(place, rank)) return true;
    return false;
  }

  bool has_known_clock(size_t rank) const {
    if (clocks_agree_) return true;
    const double in_time = kInTime * usual_ms_[place_][rank];
    for (size_t place = 0; place < steps_.calls; ++place)
      if (std::abs(usual_ms_[place][rank]) <= in_time) return true;
    std::vector<double> outside;
    for (size_t i = 0; i < group_.calls.size(); ++i)
      if (i < steps_.begin || i >= steps_.begin + steps_.steps * steps_.calls)
        outside.push_back(lateness(i, rank));
    return outside.size() >= kLeastOutside && std::abs(middle(outside)) <= in_time;
  }

  void write(const RankSet& late, FlightFinding* finding) const {
    const FlightEntry& call =
        *group_.calls[steps_.begin + (steps_.steps - 1) * steps_.calls + place_];
    finding->kind = FlightClass::straggler;
    finding->group = group_.name;
    finding->description = group_.description;
    finding->operation = call.operation;
    finding->sequence = call.sequence;
    finding->lateness_ms = lateness_ms_;
    finding->slowdown = step_ms_ / (step_ms_ - lateness_ms_);
    finding->evidence = {fmt::format(
        "in {} steps of {} {} and {:.1f} ms each, {} {} collective {} of each step {:.1f} ms after "
        "the middle rank{} (group {})",
        steps_.steps, steps_.calls, plural(static_cast<int64_t>(steps_.calls), "collective"),
        step_ms_, rank_list(late), group_.by_runs ? "began" : "called", place_ + 1, lateness_ms_,
        group_.by_runs ? ", by how long their GPUs ran in it" : "", group_.name)};
    finding->guilty = late;
    for (const int64_t rank : group_.ranks)
      if (!late.contains(rank)) finding->victims.insert(rank);
  }

  const GroupArrivals& group_;
  const Steps steps_;
  const bool clocks_agree_;
  std::vector<double> middle_ms_;              // by collective
  std::vector<std::vector<double>> usual_ms_;  // lateness, by place in the step and rank
  std::vector<std::vector<bool>> late_;        // likewise
  size_t place_ = 0, rank_ = 0;                // where the most lateness is, and whose
  double lateness_ms_ = 0, step_ms_ = 0;
};

// What GPUs saw says more than when hosts called. By whose arrivals `finding` is.
GroupArrivals tell_by_best(GroupArrivals called, const Steps& steps, bool clocks_agree,
                           FlightFinding* finding) {
  auto runs = clocks_agree ? std::nullopt : arrivals_by_runs(called);
  const Steps of_runs = runs ? steps_of(*runs) : Steps{};
  if (of_runs.steps >= kLeastSteps) {
    LateArrivals(*runs, of_runs, true).tell(finding);
    // Of what is left out, only the hosts' times tell.
    const bool sure = runs->whole && runs->calls.front()->ran_ns >= 0;
    if (finding->kind == FlightClass::straggler || sure) return *std::move(runs);
  }
  LateArrivals(called, steps, clocks_agree).tell(finding);
  return called;
}

std::map<std::string, std::vector<Member>> by_group(const std::vector<FlightDump>& dumps) {
  std::map<std::string, std::vector<Member>> groups;
  for (const FlightDump& dump : dumps) {
    if (dump.from_log) continue;
    for (const FlightEntry& entry : dump.entries) {
      if (entry.point_to_point || entry.created_ns <= 0) continue;
      std::vector<Member>& members = groups[entry.group];
      if (members.empty() || members.back().dump != &dump) members.push_back({&dump, {}});
      members.back().entries.push_back(&entry);
    }
  }
  return groups;
}

void doubt_for_stages(const std::string& told, FlightFinding* finding) {
  doubt({},
        fmt::format("whether it is by design that {} {} late to group {}: {}, as in a pipeline, "
                    "and no group of ranks of one stage shows a late one",
                    rank_list(finding->guilty), finding->guilty.size() > 1 ? "are" : "is",
                    finding->group, told),
        finding);
}

RankSet ranks_of(const std::vector<Member>& members) {
  RankSet ranks;
  for (const Member& member : members) ranks.insert(member.dump->rank);
  return ranks;
}

// A rank that is late in one group is late in what its peers do in others: who is first is not
// known.
void compare(const FlightFinding& other, FlightFinding* finding) {
  if (finding->guilty == other.guilty && finding->candidates == other.candidates) return;
  RankSet ranks = other.guilty;
  ranks.insert(other.candidates.begin(), other.candidates.end());
  finding->evidence.push_back(other.evidence.back());
  doubt(ranks,
        fmt::format("which rank waits for which: ranks are late in groups {} and {}",
                    finding->group, other.group),
        finding);
}

FlightFinding compared(const std::vector<LateIn>& all, bool clocks_agree) {
  if (auto root = straggler_behind(all, clocks_agree)) return *std::move(root);
  FlightFinding finding = all.front().found;
  for (size_t i = 1; i < all.size(); ++i) compare(all[i].found, &finding);
  return finding;
}

}  // namespace

bool find_late_arrivals(const std::vector<FlightDump>& dumps, FlightFinding* finding,
                        const ArrivalClocks& clocks) {
  std::vector<LateIn> late;
  std::optional<FlightFinding> of_stages;
  std::string told;  // of these: what says so
  bool enough = false;
  for (const auto& [name, members] : by_group(dumps)) {
    if (members.size() < 2) continue;
    GroupArrivals group = arrivals_of(name, members);
    const Steps steps = steps_of(group);
    if (steps.steps < kLeastSteps) continue;
    enough = true;
    FlightFinding found = *finding;
    group = tell_by_best(std::move(group), steps, clocks.agree, &found);
    if (found.kind != FlightClass::straggler) {
      finding->evidence = found.evidence;
      continue;
    }
    std::string why = told_stages(ranks_of(members), found.guilty, dumps);
    if (!why.empty()) {
      of_stages = std::move(found);
      told = std::move(why);
    } else {
      late.push_back({std::move(found), std::move(group)});
    }
  }
  if (late.empty() && !of_stages) return enough;
  if (late.empty() && of_stages->decided) doubt_for_stages(told, &*of_stages);
  *finding = late.empty() ? *std::move(of_stages) : compared(late, clocks.agree);
  const auto dumped = std::count_if(dumps.begin(), dumps.end(),
                                    [](const FlightDump& dump) { return !dump.from_log; });
  if (dumped < finding->ranks)
    doubt({},
          fmt::format("the {}s of {} {}, one of which may be later still", clocks.source,
                      finding->ranks - dumped, plural(finding->ranks - dumped, "rank")),
          finding);
  return true;
}

}  // namespace lockstep
