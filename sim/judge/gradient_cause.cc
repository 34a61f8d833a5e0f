#include "sim/judge/gradient_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/judge/lanes.h"

namespace lockstep {
namespace {

// Beyond this many units in the last place another order of addition is no explanation, unless
// lane float64 has shown that the mathematics is right.
constexpr uint64_t kOrderUlpMax = 64;

// Another function than the whole batch's shows from the first step (batch statistics of shards:
// 4e-4, docs/numerics.md); what correct models make of rounding in double stays far below this.
constexpr double kOtherFunction = 1e-8;

double float64_distance(const CauseFacts& facts) {
  for (const LaneResult& result : facts.lanes)
    if (result.lane == "float64" && result.distance) return *result.distance;
  return std::numeric_limits<double>::infinity();
}

bool on_some_ranks_only(const CauseFacts& facts) {
  return !facts.ranks.empty() && static_cast<int64_t>(facts.ranks.size()) < facts.world_size;
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
  if (missing < 0 || verdict_of(facts, "replica") == "fail") return {};
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

// A backward whose gradients came on top of the averaged ones.
Found added_again(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->own_added != 0)
      return Cause{"doubled_gradient",
                   fmt::format("on rank {}, {} of {} gradients are the golden run's plus {:.4g} x "
                               "the rank's own",
                               rank, e->gradients_wrong, e->gradients_total, e->own_added)};
  return {};
}

Found rounded_early(const CauseFacts& facts) {
  const MismatchEvidence* e = facts.first;
  if (e == nullptr || e->significant_bits == 0) return {};
  return Cause{
      "precision",
      fmt::format("all wrong gradients have at most {} significant bits: they were rounded "
                  "to {} on their way",
                  e->significant_bits, e->significant_bits <= 8 ? "bfloat16" : "float16")};
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

Found another_order(const CauseFacts& facts) {
  const MismatchEvidence* e = facts.first;
  if (e == nullptr || on_some_ranks_only(facts) || verdict_of(facts, "replica") == "fail")
    return {};
  if (e->lane != "replay" && e->lane != "exact") return {};
  const std::string float64 = verdict_of(facts, "float64");
  if (float64 == "pass")
    return Cause{"order_only", "the same addends in another order (lane float64 passes)"};
  if (float64 == "fail" || e->max_ulp > kOrderUlpMax) return {};
  return Cause{"order_only",
               fmt::format("at most {} ulp: the same addends in another order (lane float64 would "
                           "prove it)",
                           e->max_ulp)};
}

Found other_collective_cause(const CauseFacts& facts) {
  if (facts.collective_problem.empty()) return {};
  return Cause{"collective_mismatch", facts.collective_problem};
}

Found absent(const CauseFacts& facts) {
  if (!facts.gradients_absent) return {};
  return Cause{"missing_gradient", "gradients are absent that the golden run has"};
}

// One that is there, be it zero, keeps momentum and weight decay going.
Found left_over(const CauseFacts& facts) {
  const MismatchEvidence* e = facts.first;
  if (e == nullptr || e->present_in != "run") return {};
  return Cause{"stale_gradient",
               fmt::format("{} has a gradient, where the golden run has none: nobody has used it "
                           "in this step",
                           e->tensor)};
}

Found lost_accumulation(const CauseFacts& facts) {
  if (facts.accumulation_problem.empty()) return {};
  return Cause{"missing_gradient", facts.accumulation_problem};
}

}  // namespace

std::string verdict_of(const CauseFacts& facts, const std::string& lane) {
  for (const LaneResult& result : facts.lanes)
    if (result.lane == lane) return result.verdict;
  return "";
}

Found flipped_bits(const CauseFacts& facts) {
  const bool replicas_part = on_some_ranks_only(facts) || verdict_of(facts, "replica") == "fail";
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

Found other_function(const CauseFacts& facts) {
  if (verdict_of(facts, "float64") != "fail" || verdict_of(facts, "replay") != "pass") return {};
  if (float64_distance(facts) < kOtherFunction)
    return Cause{"unknown",
                 "lane replay passes and the full batch is little beyond the bound: rounding that "
                 "the model makes large (a gradient that is zero but for rounding under Adam, "
                 "normalization over few values), or a very small defect"};
  return Cause{"not_shard_decomposable",
               "lane replay passes, the full batch differs: averaging over shards is another "
               "function than the loss of the whole batch"};
}

Cause unknown_cause(const CauseFacts& facts) {
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

Found cause_of_gradients(const CauseFacts& facts) {
  // From the most specific to the least.
  for (auto rule : {clipping, left_over, lost_accumulation, missing_part, unsummed_bucket, absent,
                    added_again, one_ratio, own_divisor, other_collective_cause, not_finite,
                    flipped_bits, rounded_early, other_function, another_order})
    if (auto cause = rule(facts)) return cause;
  return {};
}

}  // namespace lockstep
