#include "sim/report/html/timeline.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "scenarios/base/phase.h"
#include "scenarios/json/json_text.h"
#include "sim/analysis/metrics.h"
#include "sim/analysis/timeline.h"
#include "sim/plan/plans.h"
#include "sim/report/fault_marks.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kTickNs = 100;
constexpr size_t kMostTimelineBytes = 24'000'000;  // of the runs of one page that were as expected

// The steps that are drawn: outwards from the focus, the later one first, until `most` ranks have
// entered a collective.
std::set<int64_t> drawn_steps(const Timeline& timeline, int64_t focus, int64_t most) {
  std::map<int64_t, int64_t> passages;
  for (const auto& phases : timeline.phases)
    for (const PhaseInterval& phase : phases) passages[phase.step] += 1;
  for (const Collective& one : timeline.collectives)
    passages[one.step] += static_cast<int64_t>(one.ranks.size());
  for (const Collective& one : timeline.group_collectives)
    passages[one.step] += static_cast<int64_t>(timeline.groups[*one.group].ranks.size());
  std::vector<std::pair<int64_t, int64_t>> steps(passages.begin(), passages.end());
  std::sort(steps.begin(), steps.end(), [&](const auto& a, const auto& b) {
    const int64_t far_a = std::abs(a.first - focus), far_b = std::abs(b.first - focus);
    return far_a != far_b ? far_a < far_b : a.first > b.first;
  });
  std::set<int64_t> drawn;
  for (const auto& [step, count] : steps) {
    most -= count;
    if (most < 0 && !drawn.empty()) break;
    drawn.insert(step);
  }
  return drawn;
}

class TimelineJson {
 public:
  TimelineJson(const Timeline& timeline, std::set<int64_t> steps)
      : timeline_(timeline), steps_(std::move(steps)) {}

  // By rank: number of the phase, step, begin, end, one behind the other.
  Json phases() const {
    Json all = Json::array();
    for (const auto& phases : timeline_.phases) {
      Json& row = all.emplace_back(Json::array());
      for (const PhaseInterval& phase : phases) {
        if (steps_.count(phase.step) == 0) continue;
        row.push_back(static_cast<int>(phase.phase));
        row.push_back(phase.step);
        row.push_back(at(phase.time.begin_ns));
        row.push_back(at(phase.time.end_ns));
      }
    }
    return all;
  }

  // Sequence, operation, bucket, bytes, step; then by rank [ready, arrival, launched, end], or null
  // of one that never came.
  Json collectives() const {
    Json all = Json::array();
    for (const Collective& one : timeline_.collectives) {
      if (steps_.count(one.step) == 0) continue;
      Json row = {one.sequence, operation_of(one), one.bucket, one.bytes, one.step};
      for (const Passage& rank : one.ranks)
        row.push_back(rank.arrival_ns ? passage(rank) : Json(nullptr));
      all.push_back(std::move(row));
    }
    return all;
  }

  // Of some ranks: name and ranks.
  Json groups() const {
    Json all = Json::array();
    for (const RankGroup& group : timeline_.groups) all.push_back({group.name, group.ranks});
    return all;
  }

  // The group's place among these, and the rest as of all ranks; 0 of a rank that is not in it.
  Json group_collectives() const {
    Json all = Json::array();
    for (const Collective& one : timeline_.group_collectives) {
      if (steps_.count(one.step) == 0) continue;
      Json row = {*one.group, one.sequence, operation_of(one), one.bucket, one.bytes, one.step};
      for (const Passage& rank : one.ranks)
        row.push_back(rank.arrival_ns ? passage(rank) : Json(0));
      for (const int64_t rank : timeline_.groups[*one.group].ranks)
        if (Json& own = row[kBeforeRanks + static_cast<size_t>(rank)]; own == 0) own = nullptr;
      all.push_back(std::move(row));
    }
    return all;
  }

 private:
  static constexpr size_t kBeforeRanks = 6;  // in a row of group_collectives()

  Json passage(const Passage& rank) const {
    return {at(rank.ready_ns), at(rank.arrival_ns), at(rank.launched_ns), at(rank.end_ns)};
  }
  int64_t at(int64_t time_ns) const { return (time_ns - timeline_.origin_ns) / kTickNs; }
  Json at(const std::optional<int64_t>& time_ns) const {
    return time_ns ? Json(at(*time_ns)) : Json(nullptr);
  }

  const Timeline& timeline_;
  std::set<int64_t> steps_;
};

// Step, skew, step time, ideal; then the ranks' waits and their overlaps.
Json steps_json(const Metrics& metrics, const std::set<int64_t>& drawn) {
  Json all = Json::array();
  for (const StepMetrics& step : metrics.per_step) {
    if (drawn.count(step.step) == 0) continue;
    Json waits = Json::array(), overlaps = Json::array();
    for (const RankNumbers& rank : step.ranks) {
      waits.push_back(rank.wait_ms);
      overlaps.push_back(or_null(rank.overlap()));
    }
    all.push_back({step.step, step.skew_ms, or_null(step.step_ms), or_null(step.ideal_ms),
                   std::move(waits), std::move(overlaps)});
  }
  return all;
}

// Rank, time, what acted.
Json marks_json(const RunOutcome& outcome, const HtmlRun& run, int64_t origin_ns) {
  Json marks = Json::array();
  for (const FaultMark& mark : fault_marks(outcome)) {
    const int64_t fault = int64_t{mark.subject} - kFirstFault;
    const bool told = fault >= 0 && fault < static_cast<int64_t>(run.faults.size());
    marks.push_back(
        {mark.rank, (mark.time_ns - origin_ns) / kTickNs, told ? run.faults[fault] : mark.name});
  }
  return marks;
}

Json phase_words() {
  Json words = Json::array();
  for (int phase = 0; phase <= static_cast<int>(Phase::teardown); ++phase)
    words.push_back(to_word(static_cast<Phase>(phase)));
  return words;
}

}  // namespace

HtmlFocus focus_of(const std::optional<Failure>& failure,
                   const std::optional<Divergence>& divergence,
                   const std::optional<Straggler>& straggler) {
  if (failure && failure->rank) return {{*failure->rank}, failure->step, failure->kind};
  if (failure) return {{}, failure->step, failure->kind};
  if (divergence) return {{}, divergence->step, divergence->cause};
  if (straggler && straggler->rank)
    return {{*straggler->rank}, straggler->first_late_step, "late: " + straggler->late_class};
  if (straggler) return {straggler->ranks, straggler->first_late_step, straggler->late_class};
  return {};
}

std::string html_timeline(const RunOutcome& outcome, const HtmlRun& run, int64_t most) {
  const Timeline timeline = timeline_of(outcome);
  const Metrics metrics = metrics_of(timeline);
  const std::set<int64_t> drawn = drawn_steps(timeline, run.focus.step, most);
  int64_t last = 0;
  for (const auto& phases : timeline.phases)
    for (const PhaseInterval& phase : phases) last = std::max(last, phase.step);
  const TimelineJson events(timeline, drawn);
  const Json json = {
      {"name", run.name},
      {"world_size", timeline.world_size},
      {"tick_ns", kTickNs},
      {"focus", {{"ranks", run.focus.ranks}, {"step", run.focus.step}, {"what", run.focus.what}}},
      {"last_step", last},
      {"first_drawn", drawn.empty() ? 0 : *drawn.begin()},
      {"last_drawn", drawn.empty() ? 0 : *drawn.rbegin()},
      {"phase_words", phase_words()},
      {"phases", events.phases()},
      {"collectives", events.collectives()},
      {"groups", events.groups()},
      {"group_collectives", events.group_collectives()},
      {"marks", marks_json(outcome, run, timeline.origin_ns)},
      {"metrics", as_json(metrics, nullptr)},
      {"steps", steps_json(metrics, drawn)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void HtmlTimelines::add(size_t index, const RunOutcome& outcome, const RunResult& result) {
  // What is not as expected may take twice the room.
  if (bytes_ > kMostTimelineBytes * (result.met == true ? 1 : 2)) return;
  HtmlRun run{result.name, focus_of(result.failure, result.first_divergence, result.straggler)};
  if (!result.label.empty()) run.name += ": " + result.label;
  Kept& kept = kept_.emplace_back(Kept{index, html_timeline(outcome, run)});
  bytes_ += kept.text.size();
}

std::vector<std::string> HtmlTimelines::take(const std::vector<bool>& ended) const {
  std::vector<const Kept*> order;
  for (const Kept& kept : kept_) order.push_back(&kept);
  std::sort(order.begin(), order.end(),
            [](const Kept* a, const Kept* b) { return a->index < b->index; });
  std::vector<std::string> texts;
  for (const Kept* kept : order) {
    // Its place among the runs of the result, which are those that ended.
    const int64_t place = std::count(ended.begin(), ended.begin() + kept->index, true);
    texts.push_back(fmt::format("{{\"run\":{},{}", place, kept->text.substr(1)));
  }
  return texts;
}

}  // namespace lockstep
