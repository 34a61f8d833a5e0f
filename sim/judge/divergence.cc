#include "sim/judge/divergence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "scenarios/split.h"
#include "sim/judge/checks.h"
#include "sim/judge/gradient_cause.h"
#include "sim/judge/lanes.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

Found initial(const CauseFacts& facts) {
  if (facts.step != 0 && !(facts.manifest_failed && facts.step == 1)) return {};
  if (facts.state_kind == StateKind::optimizer_state)
    return Cause{"optimizer_state",
                 fmt::format("the optimizer state of {} differs before step 1: no reducer "
                             "synchronizes it",
                             ranks_in_words(facts.ranks))};
  if (facts.state_kind == StateKind::buffer)
    return Cause{"buffers", fmt::format("the buffers of {} differ before step 1",
                                        ranks_in_words(facts.ranks))};
  if (static_cast<int64_t>(facts.ranks.size()) == facts.world_size)
    return Cause{"initial_weights",
                 "all ranks agree before step 1, on other weights than the golden run's"};
  return Cause{"initial_weights",
               fmt::format("the weights of {} differ before step 1: the broadcast at construction "
                           "did not make them rank 0's",
                           ranks_in_words(facts.ranks))};
}

// What was resumed with is not what was saved, and the run was right until then.
Found resumed_wrong(const CauseFacts& facts) {
  if (facts.checkpoint_problem.empty() || facts.step <= facts.checkpoint_step) return {};
  return Cause{"checkpoint", facts.checkpoint_problem};
}

// Where ranks update weights for each other: what an owner updated did not come.
Found stale_weights(const CauseFacts& facts) {
  if (!facts.shares_optimizer) return {};
  for (const auto& [rank, e] : facts.witnesses)
    if (!e->weights_kept.empty() && e->weights_moved)
      return Cause{"stale_weights",
                   fmt::format("values of the step before in {} on {}: what their owners updated "
                               "did not come",
                               fmt::join(e->weights_kept, " "), ranks_in_words(facts.ranks))};
  return {};
}

Found skipped_step(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->skipped_run != e->skipped_golden)
      return Cause{
          "skipped_step",
          fmt::format("{} skipped {} steps so far, {} {}", ranks_in_words(facts.ranks),
                      e->skipped_run, e->lane == Lane::replica ? "rank 0" : "the golden run",
                      e->skipped_golden)};
    if (e->update_known && std::abs(e->update_ratio) < 1e-6)
      return Cause{"skipped_step", fmt::format("the weights of {} did not change in this step",
                                               ranks_in_words(facts.ranks))};
  }
  return {};
}

// At the end of an epoch ranks that join get the weights of another, and nothing else of it.
Found left_behind(const CauseFacts& facts) {
  const bool after_update =
      facts.state_kind == StateKind::parameter || facts.state_kind == StateKind::optimizer_state;
  const bool all_ran_out = std::all_of(facts.ranks.begin(), facts.ranks.end(), [&](int64_t rank) {
    return std::find(facts.ran_out.begin(), facts.ran_out.end(), rank) != facts.ran_out.end();
  });
  if (!after_update || facts.ranks.empty() || !all_ran_out) return {};
  return Cause{"optimizer_state",
               fmt::format("{} ran out of batches in the epoch before: the weights of the others "
                           "were handed over, their optimizer state was not",
                           ranks_in_words(facts.ranks))};
}

Found learning_rate(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->update_known && std::abs(e->update_ratio - 1) > 1e-3)
      return Cause{"learning_rate",
                   fmt::format("gradients and optimizer state agree, the weights of {} changed by "
                               "{:.4g} x golden",
                               ranks_in_words(facts.ranks), e->update_ratio)};
  return {};
}

Found other_shard(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->local_wrong && e->local_of_rank >= 0)
      return Cause{"wrong_shard",
                   fmt::format("rank {} trained on the shard of rank {}: before the reduction its "
                               "gradients are that rank's",
                               rank, e->local_of_rank)};
  return {};
}

Found other_batch(const CauseFacts& facts) {
  if (facts.batch_problem.empty() || facts.state_kind != StateKind::gradient) return {};
  return Cause{"global_batch", facts.batch_problem};
}

// Right samples at the wrong time: not another rank's of this step.
Found other_samples(const CauseFacts& facts) {
  if (facts.samples_problem.empty() || facts.state_kind != StateKind::gradient) return {};
  return Cause{"sample_order", facts.samples_problem};
}

Found only_rounding(const CauseFacts& facts) {
  if (verdict_of(facts, Lane::rounding) != LaneVerdict::fail) return {};
  bool finite = true;
  for (const LaneResult& lane : facts.lanes) {
    if (lane.lane != Lane::rounding && lane.verdict == LaneVerdict::fail) return {};
    if (lane.lane == Lane::rounding && lane.statistic) finite = std::isfinite(*lane.statistic);
  }
  if (!finite)
    return Cause{"overflow",
                 "the gradients are not finite where the double run's are (R is "
                 "infinite), on all ranks alike"};
  return Cause{"precision", "the error is beyond what float32 rounding explains (R above 8)"};
}

Found after_the_gradients(const CauseFacts& facts) {
  if (facts.state_kind == StateKind::buffer)
    return Cause{"buffers", "the gradients agree, a buffer is the first to differ"};
  if (facts.state_kind == StateKind::optimizer_state)
    return Cause{"optimizer_state",
                 "gradients and parameters agree, the optimizer's state is the first to differ"};
  if (facts.state_kind == StateKind::parameter)
    return Cause{"unknown", "the gradients agree, the parameters after the optimizer do not"};
  return {};
}

}  // namespace

Cause name_cause(const CauseFacts& facts) {
  if (auto cause = initial(facts)) return *cause;
  if (auto cause = resumed_wrong(facts)) return *cause;
  if (auto cause = stale_weights(facts)) return *cause;
  if (auto cause = skipped_step(facts)) return *cause;
  if (auto cause = other_batch(facts)) return *cause;
  if (auto cause = left_behind(facts)) return *cause;
  if (auto cause = other_shard(facts)) return *cause;
  if (auto cause = other_samples(facts)) return *cause;
  if (auto cause = only_rounding(facts)) return *cause;
  if (facts.state_kind == StateKind::gradient) {
    if (auto cause = cause_of_gradients(facts)) return *cause;
    return unknown_cause(facts);
  }
  if (auto cause = not_finite(facts)) return *cause;
  if (auto cause = flipped_bits(facts)) return *cause;
  if (facts.state_kind == StateKind::parameter)
    if (auto cause = learning_rate(facts)) return *cause;
  // Where parameters alone are compared, gradients may have been the first to differ.
  if (facts.first != nullptr &&
      (facts.first->gradients_total == 0 || facts.first->gradients_wrong > 0))
    if (auto cause = other_function(facts)) return *cause;
  if (auto cause = after_the_gradients(facts)) return *cause;
  return unknown_cause(facts);
}

namespace {

// A place where a lane says that the run went wrong, with or without the worker's evidence.
struct Candidate {
  int64_t step = 0;
  std::optional<StateKind> state_kind;  // none: not known, and so the last of its step
  Lane lane = Lane::replica;
  int64_t rank = 0;
  const MismatchEvidence* evidence = nullptr;
  std::vector<int64_t> ranks;  // where known beforehand

  auto order() const {
    return std::tuple(step, state_kind ? static_cast<size_t>(*state_kind) : kStateKinds,
                      evidence == nullptr, row_of(lane).evidence_rank, rank);
  }
};

bool failed(const std::vector<LaneResult>& lanes, Lane lane) {
  return std::any_of(lanes.begin(), lanes.end(), [&](const LaneResult& result) {
    return result.lane == lane && result.verdict == LaneVerdict::fail;
  });
}

void add_of_rank(const RankView& rank, const std::vector<LaneResult>& lanes,
                 std::vector<Candidate>* found) {
  for (const MismatchEvidence& e : rank.evidence.mismatches)
    if (failed(lanes, e.lane))
      found->push_back({e.step, e.state_kind, e.lane, rank.rank, &e, e.ranks});
  for (const LaneResult& lane : lanes) {
    if (lane.verdict != LaneVerdict::fail) continue;
    const LaneTrace& trace = rank.lane(lane.lane);
    const auto step = trace.mismatch_step ? trace.mismatch_step : trace.beyond_step;
    if (step) found->push_back({*step, std::nullopt, lane.lane, rank.rank, nullptr, {}});
  }
}

std::vector<Candidate> candidates(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                                  const std::vector<LaneResult>& lanes) {
  std::vector<Candidate> found;
  for (const RankView& rank : ranks) add_of_rank(rank, lanes, &found);
  if (failed(lanes, Lane::replica))
    if (auto split = find_replica_split(ranks))
      found.push_back({split->step, split->state_kind, Lane::replica, 0, nullptr, split->ranks});
  for (const LaneRow& row : lockstep::lanes())
    if (row.method == LaneMethod::statistic && failed(lanes, row.lane))
      if (auto step = statistic_beyond(outcome, row.lane))
        found.push_back({*step, StateKind::gradient, row.lane, 0, nullptr, {}});
  std::sort(found.begin(), found.end(),
            [](const Candidate& a, const Candidate& b) { return a.order() < b.order(); });
  return found;
}

std::vector<int64_t> ranks_of(const Candidate& chosen, const std::vector<Candidate>& all) {
  std::vector<int64_t> ranks = chosen.ranks;
  const LaneMethod method = row_of(chosen.lane).method;
  if (method == LaneMethod::bits || method == LaneMethod::distance) {
    for (const Candidate& other : all)
      if (other.lane == chosen.lane && other.step == chosen.step) ranks.push_back(other.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void copy_values(const MismatchEvidence& e, Divergence* divergence) {
  divergence->tensor = e.tensor;
  if (e.bucket >= 0) divergence->bucket = e.bucket;
  divergence->element = e.element;
  divergence->run_value = e.run_value;
  divergence->golden_value = e.golden_value;
  divergence->run_bits = e.run_bits;
  divergence->golden_bits = e.golden_bits;
  divergence->ulp = e.ulp;
  divergence->max_ulp = e.max_ulp;
  divergence->differing = e.differing;
  divergence->numel = e.numel;
}

bool check_failed(const std::vector<RankView>& ranks, Check which) {
  for (const RankView& rank : ranks)
    for (const auto& [check, passed] : rank.checks)
      if (check == which && !passed) return true;
  return false;
}

// Of the first rank whose state was not restored as it had been saved.
void add_checkpoint_problem(const std::vector<RankView>& ranks, CauseFacts* facts) {
  for (const RankView& rank : ranks)
    for (const CheckReason& reason : rank.evidence.check_reasons)
      if (reason.check == Check::checkpoint && facts->checkpoint_problem.empty())
        facts->checkpoint_problem = reason.text;
}

// Of the first rank whose samples in this step were not the plan's. Ranks note their first such
// step only, and it is in that one that the run goes wrong.
std::string samples_problem(const std::vector<RankView>& ranks, int64_t step, Check check) {
  for (const RankView& rank : ranks)
    for (const CheckReason& reason : rank.evidence.check_reasons)
      if (reason.check == check && reason.step == step) return reason.text;
  return "";
}

// Which ranks had a batch in that step, and which ran out in the epoch before.
void add_batches(const Scenario& scenario, CauseFacts* facts) {
  facts->active_ranks = facts->world_size;
  if (!scenario.join_divide_by || facts->step == 0) return;
  const Split split(scenario);
  facts->active_ranks = split.active_ranks(facts->step);
  const int64_t epoch = split.steps_per_epoch();
  const int64_t before = (facts->step - 1) / epoch * epoch;  // its last step; 0: none
  for (int64_t rank = 0; before > 0 && rank < facts->world_size; ++rank)
    if (!split.has_batch(before, rank)) facts->ran_out.push_back(rank);
}

std::vector<int64_t> counts_of(const Scenario& scenario) {
  std::vector<int64_t> counts = {scenario.accumulate_steps};
  for (const Part* part : {&scenario.communicator, &scenario.split})
    if (part->options.has("ranks_per_host"))
      counts.push_back(part->options.integer("ranks_per_host"));
    else if (part->options.has("ranks_per_node"))
      counts.push_back(part->options.integer("ranks_per_node"));
  return counts;
}

CauseFacts facts_of(const Candidate& chosen, const Divergence& divergence,
                    const std::vector<RankView>& ranks, const std::vector<LaneResult>& lanes,
                    const std::vector<Candidate>& all) {
  CauseFacts facts;
  facts.state_kind = divergence.state_kind;
  facts.step = divergence.step;
  facts.world_size = static_cast<int64_t>(ranks.size());
  facts.lanes = lanes;
  facts.ranks = divergence.ranks;
  facts.manifest_failed = check_failed(ranks, Check::manifest);
  facts.gradients_absent = check_failed(ranks, Check::absent_gradients);
  add_checkpoint_problem(ranks, &facts);
  facts.samples_problem = samples_problem(ranks, divergence.step, Check::samples);
  facts.accumulation_problem = samples_problem(ranks, divergence.step, Check::accumulation);
  facts.batch_problem = samples_problem(ranks, divergence.step, Check::batch);
  if (const auto other = first_other_collective(ranks); other && other->step <= divergence.step)
    facts.collective_problem = other->text;
  facts.first = chosen.evidence;
  for (const Candidate& other : all)  // in the order of lanes, then ranks
    if (other.evidence != nullptr && other.step == chosen.step)
      facts.witnesses.push_back({other.rank, other.evidence});
  return facts;
}

}  // namespace

std::optional<Divergence> first_divergence(const RunOutcome& outcome,
                                           const std::vector<RankView>& ranks,
                                           const std::vector<LaneResult>& lanes) {
  const std::vector<Candidate> all = candidates(outcome, ranks, lanes);
  if (all.empty()) return std::nullopt;
  const Candidate& chosen = all.front();
  Divergence divergence;
  divergence.lane = chosen.lane;
  divergence.step = chosen.step;
  divergence.state_kind = chosen.state_kind;
  divergence.ranks = ranks_of(chosen, all);
  if (chosen.evidence != nullptr) copy_values(*chosen.evidence, &divergence);
  CauseFacts facts = facts_of(chosen, divergence, ranks, lanes, all);
  facts.first_step = outcome.plan.start_step + 1;
  add_batches(outcome.plan.scenario, &facts);
  const Part& checkpoint = outcome.plan.scenario.checkpoint;
  if (checkpoint.options.has("after_step"))
    facts.checkpoint_step = checkpoint.options.integer("after_step");
  if (outcome.plan.replay.gathered) facts.summed_replicas = outcome.plan.scenario.world_size;
  facts.shares_optimizer = shares_optimizer(outcome.plan.scenario);
  facts.compresses = compresses(outcome.plan.scenario);
  facts.counts = counts_of(outcome.plan.scenario);
  const Cause cause = name_cause(facts);
  divergence.cause = cause.word;
  divergence.explanation = cause.explanation;
  return divergence;
}

}  // namespace lockstep
