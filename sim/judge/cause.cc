#include "sim/judge/cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "sim/judge/lanes.h"

namespace lockstep {
namespace {

using Found = std::optional<Cause>;

// Beyond this many units in the last place another order of addition is no explanation, unless
// lane float64 has shown that the mathematics is right.
constexpr uint64_t kOrderUlpMax = 64;

// Another function than the whole batch's shows from the first step (batch statistics of shards:
// 4e-4, docs/numerics.md); what correct models make of rounding in double stays far below this.
constexpr double kOtherFunction = 1e-8;

std::string verdict_of_lane(const CauseFacts& facts, const std::string& lane) {
  for (const LaneResult& result : facts.lanes)
    if (result.lane == lane) return result.verdict;
  return "";
}

double float64_distance(const CauseFacts& facts) {
  for (const LaneResult& result : facts.lanes)
    if (result.lane == "float64" && result.distance) return *result.distance;
  return std::numeric_limits<double>::infinity();
}

std::string ranks_in_words(const std::vector<int64_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_of(ranks);
}

bool on_some_ranks_only(const CauseFacts& facts) {
  return !facts.ranks.empty() && static_cast<int64_t>(facts.ranks.size()) < facts.world_size;
}

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

Found clipping(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->clipping == "before_sum")
      return Cause{
          "clipping",
          "the gradients are an average of gradients that each rank has clipped by itself"};
    if (e->clipping == "absent")
      return Cause{"clipping", "the gradients are the averaged ones, not clipped"};
  }
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

std::string buckets_text(const MismatchEvidence& e) {
  if (e.buckets_wrong.empty()) return "a bucket";
  return (e.buckets_wrong.size() == 1 ? "bucket " : "buckets ") + list_of(e.buckets_wrong);
}

Found unsummed_bucket(const CauseFacts& facts) {
  if (facts.active_ranks < 2) return {};  // its own part is then all there is
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->own_undivided && e->gradients_wrong > 0 && !e->local_wrong)
      return Cause{"missing_bucket",
                   fmt::format("{} was never synchronized: on rank {} its gradients are the "
                               "rank's own, as its backward made them",
                               buckets_text(*e), rank)};
    if (e->own_contribution && e->gradients_wrong > 0 && !e->local_wrong)
      return Cause{"missing_bucket",
                   fmt::format("{} was never summed: on rank {} its gradients are the rank's own, "
                               "divided by {}",
                               buckets_text(*e), rank, facts.world_size)};
  }
  for (const auto& [rank, e] : facts.witnesses)
    if (facts.shares_optimizer && e->single_contributions && !e->local_wrong)
      return Cause{"missing_bucket",
                   fmt::format("{} was never summed: each element of its gradients is one rank's "
                               "own, divided by {}",
                               buckets_text(*e), facts.world_size)};
  return {};
}

// With two ranks a bucket that was never summed lacks, on each, the other's part: all must lack the
// same one's.
Found missing_part(const CauseFacts& facts) {
  int64_t missing = -1;
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->lane != "replay") continue;
    if (e->missing_rank < 0 || (missing >= 0 && e->missing_rank != missing)) return {};
    missing = e->missing_rank;
  }
  if (missing < 0 || verdict_of_lane(facts, "replica") == "fail") return {};
  return Cause{"missing_gradient",
               fmt::format("{} of {} gradients are the golden run's without what rank {} adds",
                           facts.first == nullptr ? 0 : facts.first->gradients_wrong,
                           facts.first == nullptr ? 0 : facts.first->gradients_total, missing)};
}

std::string divisor_text(double ratio, int64_t ranks) {
  const double divisor = static_cast<double>(ranks) / ratio;
  const double whole = std::round(divisor);
  std::string times = fmt::format("gradients are {:.4g} x golden", ratio);
  if (whole < 1 || std::abs(divisor - whole) > 1e-3 * whole) return times;
  if (whole == 1) return fmt::format("{}: summed, not divided by {}", times, ranks);
  return fmt::format("{}: divided by {:.0f} instead of {}", times, whole, ranks);
}

Found one_ratio(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses) {
    if (!e->one_ratio || !std::isfinite(e->ratio)) continue;
    if (e->ratio == 0)
      return Cause{"missing_gradient", fmt::format("{} of {} gradients are zero on rank {}",
                                                   e->gradients_wrong, e->gradients_total, rank)};
    if (std::abs(e->ratio - 2) < 1e-3 && e->gradients_wrong < e->gradients_total)
      return Cause{"doubled_gradient", fmt::format("{} of {} gradients are twice the golden run's",
                                                   e->gradients_wrong, e->gradients_total)};
    if (facts.summed_replicas > 0)
      return Cause{"wrong_divisor",
                   fmt::format("gradients are {:.4g} x golden: the sum over {} replicas divided by "
                               "{:.4g}, where the loss is over all outputs already",
                               e->ratio, facts.summed_replicas, 1 / e->ratio)};
    return Cause{"wrong_divisor", divisor_text(e->ratio, facts.active_ranks)};
  }
  return {};
}

// Each rank's own gradients are off by a factor of its own: shards of different sizes that are
// averaged as if they were equal.
Found own_divisor(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->local_wrong && e->local_ratio != 0)
      return Cause{"wrong_divisor",
                   fmt::format("rank {}'s gradients are {:.4g} x golden before the reduction "
                               "already: its mean over its own samples counts for another share "
                               "of the batch than they are",
                               rank, e->local_ratio)};
  return {};
}

Found not_finite(const CauseFacts& facts) {
  const MismatchEvidence* e = facts.first;
  if (e == nullptr || std::isfinite(e->run_value) || !std::isfinite(e->golden_value)) return {};
  return Cause{"overflow", "the run's value is not finite where the golden run's is"};
}

Found flipped_bits(const CauseFacts& facts) {
  const bool replicas_part =
      on_some_ranks_only(facts) || verdict_of_lane(facts, "replica") == "fail";
  for (const auto& [rank, e] : facts.witnesses) {
    const bool few = e->bits_flipped >= 1 && e->bits_flipped <= 8;
    const bool one_element = e->differing == 1 && e->gradients_wrong <= 1;
    if (!replicas_part || !(few || one_element)) continue;
    if (few)
      return Cause{"corrupted_bits",
                   fmt::format("{} {} of one copy flipped, on {} only", e->bits_flipped,
                               e->bits_flipped == 1 ? "bit" : "bits", ranks_in_words(facts.ranks))};
    return Cause{"corrupted_bits",
                 fmt::format("one element is wrong, on {} only", ranks_in_words(facts.ranks))};
  }
  return {};
}

Found another_order(const CauseFacts& facts) {
  const MismatchEvidence* e = facts.first;
  if (e == nullptr || on_some_ranks_only(facts) || verdict_of_lane(facts, "replica") == "fail")
    return {};
  if (e->lane != "replay" && e->lane != "exact") return {};
  const std::string float64 = verdict_of_lane(facts, "float64");
  if (float64 == "pass")
    return Cause{"order_only", "the same addends in another order (lane float64 passes)"};
  if (float64 == "fail" || e->max_ulp > kOrderUlpMax) return {};
  return Cause{"order_only",
               fmt::format("at most {} ulp: the same addends in another order (lane float64 would "
                           "prove it)",
                           e->max_ulp)};
}

// Replay, which shares kernels and loss with the run, agrees; the full batch does not.
Found mathematics(const CauseFacts& facts) {
  if (verdict_of_lane(facts, "float64") != "fail" || verdict_of_lane(facts, "replay") != "pass")
    return {};
  if (float64_distance(facts) < kOtherFunction)
    return Cause{"unknown",
                 "lane replay passes and the full batch is little beyond the bound: rounding that "
                 "the model makes large (a gradient that is zero but for rounding under Adam, "
                 "normalization over few values), or a very small defect"};
  return Cause{"not_shard_decomposable",
               "lane replay passes, the full batch differs: averaging over shards is another "
               "function than the loss of the whole batch"};
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
  if (verdict_of_lane(facts, "rounding") != "fail") return {};
  for (const LaneResult& lane : facts.lanes)
    if (lane.lane != "rounding" && lane.verdict == "fail") return {};
  return Cause{"precision", "the error is beyond what float32 rounding explains (R above 8)"};
}

Cause unknown_gradients(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->local_wrong)
      return {"unknown",
              fmt::format("rank {}'s gradients differ from the golden run's before the reduction "
                          "already, and are no other rank's",
                          rank)};
  if (facts.first == nullptr) return {"unknown", "the records hold no evidence of the values"};
  return {"unknown", fmt::format("{} of {} gradients differ, by no common factor",
                                 facts.first->gradients_wrong, facts.first->gradients_total)};
}

Found of_gradients(const CauseFacts& facts) {
  if (facts.gradients_absent)
    return Cause{"missing_gradient", "gradients are absent that the golden run has"};
  // From the most specific to the least.
  for (auto rule : {clipping, missing_part, unsummed_bucket, one_ratio, own_divisor, not_finite,
                    flipped_bits, mathematics, another_order})
    if (auto cause = rule(facts)) return cause;
  return {};
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
    if (auto cause = of_gradients(facts)) return *cause;
    return unknown_gradients(facts);
  }
  if (auto cause = flipped_bits(facts)) return *cause;
  if (facts.state_kind == "parameter")
    if (auto cause = learning_rate(facts)) return *cause;
  // The worst tensor is named, and Adam's second moments square what gradients have.
  if (facts.state_kind == "parameter" || facts.state_kind == "optimizer_state")
    if (auto cause = mathematics(facts)) return *cause;
  if (auto cause = after_the_gradients(facts)) return *cause;
  return unknown_gradients(facts);
}

}  // namespace lockstep
