#include "sim/judge/cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/judge/gradient_cause.h"
#include "sim/judge/lanes.h"

namespace lockstep {
namespace {

Found initial(const CauseFacts& facts) {
  if (facts.step != 0 && !(facts.manifest_failed && facts.step == 1)) return {};
  if (facts.state_kind == "optimizer_state")
    return Cause{"optimizer_state",
                 fmt::format("the optimizer state of {} differs before step 1: no reducer "
                             "synchronizes it",
                             ranks_in_words(facts.ranks))};
  if (facts.state_kind == "buffer")
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
      return Cause{"skipped_step",
                   fmt::format("{} skipped {} steps so far, {} {}", ranks_in_words(facts.ranks),
                               e->skipped_run, e->lane == "replica" ? "rank 0" : "the golden run",
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
      facts.state_kind == "parameter" || facts.state_kind == "optimizer_state";
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
  if (facts.batch_problem.empty() || facts.state_kind != "gradient") return {};
  return Cause{"global_batch", facts.batch_problem};
}

// Right samples at the wrong time: not another rank's of this step.
Found other_samples(const CauseFacts& facts) {
  if (facts.samples_problem.empty() || facts.state_kind != "gradient") return {};
  return Cause{"sample_order", facts.samples_problem};
}

Found only_rounding(const CauseFacts& facts) {
  if (verdict_of(facts, "rounding") != "fail") return {};
  bool finite = true;
  for (const LaneResult& lane : facts.lanes) {
    if (lane.lane != "rounding" && lane.verdict == "fail") return {};
    if (lane.lane == "rounding" && lane.statistic) finite = std::isfinite(*lane.statistic);
  }
  if (!finite)
    return Cause{"overflow",
                 "the gradients are not finite where the double run's are (R is "
                 "infinite), on all ranks alike"};
  return Cause{"precision", "the error is beyond what float32 rounding explains (R above 8)"};
}

Found after_the_gradients(const CauseFacts& facts) {
  if (facts.state_kind == "buffer")
    return Cause{"buffers", "the gradients agree, a buffer is the first to differ"};
  if (facts.state_kind == "optimizer_state")
    return Cause{"optimizer_state",
                 "gradients and parameters agree, the optimizer's state is the first to differ"};
  if (facts.state_kind == "parameter")
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
  if (facts.state_kind == "gradient") {
    if (auto cause = cause_of_gradients(facts)) return *cause;
    return unknown_cause(facts);
  }
  if (auto cause = not_finite(facts)) return *cause;
  if (auto cause = flipped_bits(facts)) return *cause;
  if (facts.state_kind == "parameter")
    if (auto cause = learning_rate(facts)) return *cause;
  // Where parameters alone are compared, gradients may have been the first to differ.
  if (facts.first != nullptr &&
      (facts.first->gradients_total == 0 || facts.first->gradients_wrong > 0))
    if (auto cause = other_function(facts)) return *cause;
  if (auto cause = after_the_gradients(facts)) return *cause;
  return unknown_cause(facts);
}

}  // namespace lockstep
