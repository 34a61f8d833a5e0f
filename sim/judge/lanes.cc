#include "sim/judge/lanes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "golden/compare.h"
#include "golden/statistics.h"
#include "sim/plan/agreement.h"

namespace lockstep {
namespace {

// Of the ranks that know a step: the first such step in which they do not all agree.
std::optional<ReplicaSplit> split_of(const std::vector<RankView>& ranks, size_t kind) {
  struct Known {
    int64_t rank;
    uint64_t value;
    std::vector<int64_t> differing;
  };
  std::map<int64_t, Known> steps;
  for (const RankView& rank : ranks)
    for (const auto& [step, value] : rank.chains[kind]) {
      Known& known = steps.try_emplace(step, Known{rank.rank, value, {}}).first->second;
      if (known.value != value) known.differing.push_back(rank.rank);
    }
  for (auto& [step, known] : steps)
    if (!known.differing.empty())
      return ReplicaSplit{step, known.rank, static_cast<StateKind>(kind), known.differing};
  return std::nullopt;
}

std::string how_far(const RankView& rank, int64_t steps) {
  if (rank.last_step_end == 0) return fmt::format("rank {} ended no step", rank.rank);
  return fmt::format("rank {} ended step {} of {}", rank.rank, rank.last_step_end, steps);
}

// Of ranks that joined: all end with the same parameters and buffers. False: not, or not known.
bool decide_final_weights(const std::vector<RankView>& ranks, LaneResult* result) {
  std::vector<int64_t> differing;
  for (const RankView& rank : ranks) {
    if (!rank.final_hash) {
      result->verdict = LaneVerdict::inconclusive;
      result->reason = fmt::format("rank {} recorded no final weights", rank.rank);
      return false;
    }
    if (*rank.final_hash != *ranks[0].final_hash) differing.push_back(rank.rank);
  }
  if (differing.empty()) return true;
  result->verdict = LaneVerdict::fail;
  result->reason =
      fmt::format("{} {} from rank 0 in the final weights or buffers", ranks_in_words(differing),
                  differing.size() == 1 ? "differs" : "differ");
  return false;
}

void decide_replica(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                    LaneResult* result) {
  if (auto split = find_replica_split(ranks)) {
    result->verdict = LaneVerdict::fail;
    result->reason =
        fmt::format("{} {} from rank {} in {} of step {}", ranks_in_words(split->ranks),
                    split->ranks.size() == 1 ? "differs" : "differ", split->reference,
                    to_word(split->state_kind), split->step);
    return;
  }
  const Scenario& scenario = outcome.plan.scenario;
  const AgreementRule agreement(scenario);
  int64_t hashes = 0;
  for (const RankView& rank : ranks)
    for (size_t kind = 0; kind < kStateKinds; ++kind) {
      const auto state_kind = static_cast<StateKind>(kind);
      const StepValues& chain = rank.chains[kind];
      hashes += static_cast<int64_t>(chain.size());
      // A model without buffers, an optimizer without state: absent, then, on rank 0 too.
      const bool may_be_absent =
          state_kind == StateKind::buffer || state_kind == StateKind::optimizer_state;
      if (chain.empty() && may_be_absent && ranks[0].chains[kind].empty()) continue;
      const bool unmatched = !chain.empty() && ranks[0].chains[kind].empty();
      const int64_t last = agreement.last_step(
          rank.rank, state_kind == StateKind::parameter ? Agreement::parameters : Agreement::all);
      if (!chain.empty() && chain.back().first == last && !unmatched) continue;
      if (chain.empty() && last <= 0) continue;  // promised in no step
      result->verdict = LaneVerdict::inconclusive;
      result->reason = unmatched ? fmt::format("rank {} has hashes of kind {}, rank 0 has none",
                                               rank.rank, to_word(state_kind))
                                 : how_far(rank, scenario.steps);
      return;
    }
  if (scenario.join_divide_by && !decide_final_weights(ranks, result)) return;
  // Large states are compared by these hashes alone.
  if (result->compared == 0) result->compared = hashes;
  result->verdict = LaneVerdict::pass;
}

std::vector<int64_t> ranks_that_differ(const std::vector<RankView>& ranks, Lane lane,
                                       int64_t* step) {
  std::vector<int64_t> found;
  for (const RankView& rank : ranks) {
    std::optional<int64_t> at = rank.lane(lane).mismatch_step;
    for (const MismatchEvidence& m : rank.evidence.mismatches)  // survives dropped events
      if (m.lane == lane && (!at || m.step < *at)) at = m.step;
    if (!at) at = rank.lane(lane).beyond_step;
    if (!at) continue;
    *step = found.empty() ? *at : std::min(*step, *at);
    found.push_back(rank.rank);
  }
  return found;
}

// Lanes replay, exact and float64: each rank against a golden run.
void decide_against_golden(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                           LaneResult* result) {
  const Lane lane = result->lane;
  for (const RankView& rank : ranks) {
    const auto& distance = rank.lane(lane).distance;
    if (distance) keep_worst(*distance, &result->distance);
  }
  int64_t step = 0;
  const auto differing = ranks_that_differ(ranks, lane, &step);
  if (!differing.empty()) {
    result->verdict = LaneVerdict::fail;
    result->reason = fmt::format(
        "{} from the golden run, first after step {}",
        ranks_in_words(differing) + (differing.size() == 1 ? " differs" : " differ"), step);
    if (lane != Lane::float64 || !result->distance) return;
    result->reason +=
        fmt::format(": distance {:.2g}, bound {:.0e}", *result->distance, kFloat64Bound);
    if (!(*result->distance > kFloat64Bound && *result->distance <= kFloat64Wrong)) return;
    result->verdict = LaneVerdict::inconclusive;
    result->reason += fmt::format(", but rounding alone may lead to {:.0e}", kFloat64Wrong);
    return;
  }
  result->verdict = LaneVerdict::inconclusive;
  const AgreementRule agreement(outcome.plan.scenario);
  const auto agreed_steps = [&](int64_t rank) {
    return lane == Lane::replay ? outcome.plan.scenario.steps
                                : agreement.last_step(rank, Agreement::parameters);
  };
  for (const RankView& rank : ranks) {
    const LaneTrace& trace = rank.lane(lane);
    if (trace.compared == 0) {
      result->reason = fmt::format("rank {} compared nothing", rank.rank);
      return;
    }
    if (trace.compared_step < agreed_steps(rank.rank)) {
      result->reason = fmt::format("rank {} compared up to step {} of {}", rank.rank,
                                   trace.compared_step, outcome.plan.scenario.steps);
      return;
    }
    if (lane == Lane::float64 && !trace.distance) {
      result->reason = fmt::format("rank {} recorded no distance", rank.rank);
      return;
    }
  }
  result->verdict = LaneVerdict::pass;
}

double threshold_of(Lane lane) {
  return lane == Lane::rounding ? kRoundingThreshold : kCommunicationThreshold;
}

// Records that hold statistics: a golden process's own, or rank 0's where ranks are threads.
std::vector<RankView> statistic_views(const RunOutcome& outcome) {
  std::vector<RankView> views;
  for (const RankRecords& records : outcome.goldens)
    views.push_back(view_of(records, kFloat64Bound));
  if (!outcome.ranks.empty()) views.push_back(view_of(outcome.ranks[0], kFloat64Bound));
  return views;
}

void decide_statistic(const RunOutcome& outcome, LaneResult* result) {
  const Lane lane = result->lane;
  const int64_t steps = outcome.plan.scenario.steps;
  std::vector<bool> seen(static_cast<size_t>(steps), false);
  for (const RankView& view : statistic_views(outcome)) {
    const auto& control = view.lane(lane).control;
    if (control && result->control != ControlVerdict::missed)
      result->control = *control ? ControlVerdict::detected : ControlVerdict::missed;
    for (const auto& [step, r] : view.lane(lane).statistic) {
      keep_worst(r, &result->statistic);
      if (step >= 1 && step <= steps) seen[static_cast<size_t>(step - 1)] = true;
    }
  }
  if (auto step = statistic_beyond(outcome, lane)) {
    result->verdict = LaneVerdict::fail;
    result->reason =
        fmt::format("{} is {:.3g} at most, first beyond the threshold of {} in step {}",
                    lane == Lane::rounding ? "R" : "the error over its bound", *result->statistic,
                    threshold_of(lane), *step);
    return;
  }
  const auto absent = std::count(seen.begin(), seen.end(), false);
  result->verdict = absent == 0 ? LaneVerdict::pass : LaneVerdict::inconclusive;
  if (absent > 0) result->reason = fmt::format("no statistic for {} of {} steps", absent, steps);
  if (result->compared == 0) result->compared = steps - absent;
}

void read_ranks(const std::vector<RankView>& ranks, LaneResult* result) {
  for (const RankView& rank : ranks) {
    const LaneTrace& trace = rank.lane(result->lane);
    result->compared += trace.compared;
    if (!trace.control || result->control == ControlVerdict::missed) continue;
    result->control = *trace.control ? ControlVerdict::detected : ControlVerdict::missed;
  }
}

void apply_own_control(LaneResult* result) {
  if (result->control == ControlVerdict::missed) {
    result->verdict = LaneVerdict::voided;
    result->reason = "its must-fail control was not detected: this lane proves nothing";
  } else if (result->control == ControlVerdict::not_run && result->verdict == LaneVerdict::pass) {
    result->verdict = LaneVerdict::inconclusive;
    result->reason = "its must-fail control did not run";
  }
}

// A golden run's forward draws other numbers than the ranks' do: to compare them would tell
// nothing.
std::string undeclared_draws(const Scenario& scenario, const std::vector<RankView>& ranks) {
  const bool named = scenario.model.options.has("name");
  const std::string model =
      named ? fmt::format("\"{}\"", scenario.model.options.text("name")) : scenario.model.kind;
  for (const RankView& rank : ranks) {
    if (rank.evidence.unrepeatable_forward)
      return fmt::format(
          "model {} gives other outputs for the same samples, weights and buffers: its forward "
          "draws from a generator of its own, or counts its calls, which golden runs cannot "
          "repeat; per-sample draws can be repeated (scenarios/workloads/draws.h)",
          model);
    if (!rank.evidence.undeclared_draws) continue;
    const auto& layers = rank.evidence.random_layers;
    return fmt::format(
        "model {} draws from LibTorch's default generator in its forward{}, which golden runs "
        "cannot repeat; per-sample draws can be repeated (scenarios/workloads/draws.h)",
        model, layers.empty() ? "" : fmt::format(" (module {})", fmt::join(layers, ", ")));
  }
  return "";
}

LaneResult decide(const RunOutcome& outcome, const std::vector<RankView>& ranks, Lane lane) {
  LaneResult result;
  result.lane = lane;
  for (const auto& [name, reason] : outcome.plan.not_applicable) {
    if (name != lane) continue;
    result.verdict = LaneVerdict::not_applicable;
    result.reason = reason;
    return result;
  }
  const std::string drawn = undeclared_draws(outcome.plan.scenario, ranks);
  if (lane != Lane::replica && !drawn.empty()) {
    result.verdict = LaneVerdict::not_applicable;
    result.reason = drawn;
    return result;
  }
  read_ranks(ranks, &result);
  switch (row_of(lane).method) {
    case LaneMethod::replicas:
      decide_replica(outcome, ranks, &result);
      break;
    case LaneMethod::statistic:
      decide_statistic(outcome, &result);
      break;
    case LaneMethod::bits:
    case LaneMethod::distance:
      decide_against_golden(outcome, ranks, &result);
  }
  apply_own_control(&result);
  return result;
}

}  // namespace

std::string list_of(const std::vector<int64_t>& ranks) {
  return fmt::format("{}", fmt::join(ranks, " "));
}

std::string ranks_in_words(const std::vector<int64_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_of(ranks);
}

std::optional<ReplicaSplit> find_replica_split(const std::vector<RankView>& ranks) {
  std::optional<ReplicaSplit> first;
  for (size_t kind = 0; kind < kStateKinds; ++kind) {
    auto split = split_of(ranks, kind);
    if (split && (!first || split->step < first->step)) first = std::move(split);
  }
  return first;
}

std::optional<int64_t> statistic_beyond(const RunOutcome& outcome, Lane lane) {
  std::optional<int64_t> first;
  for (const RankView& view : statistic_views(outcome))
    for (const auto& [step, r] : view.lane(lane).statistic)
      if (!(r <= threshold_of(lane)) && (!first || step < *first)) first = step;
  return first;
}

std::vector<LaneResult> decide_lanes(const RunOutcome& outcome,
                                     const std::vector<RankView>& ranks) {
  std::vector<LaneResult> results;
  for (const Lane lane : outcome.plan.scenario.lanes)
    results.push_back(decide(outcome, ranks, lane));
  return results;
}

}  // namespace lockstep
