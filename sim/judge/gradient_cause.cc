#include "sim/judge/gradient_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/judge/factor_cause.h"
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
    if (result.lane == Lane::float64 && result.distance) return *result.distance;
  return std::numeric_limits<double>::infinity();
}

bool on_some_ranks_only(const CauseFacts& facts) {
  return !facts.ranks.empty() && static_cast<int64_t>(facts.ranks.size()) < facts.world_size;
}

Found clipping(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->clipping == "before_sum")
      return Cause{"clipping",
                   "the gradients are an average of gradients that each rank clipped separately"};
    if (e->clipping == "absent")
      return Cause{"clipping", "the gradients are the averaged ones, not clipped"};
  }
  return {};
}

std::string buckets_text(const MismatchEvidence& e) {
  const bool part = e.elements_wrong > 0 && !e.whole_buckets;
  std::string text = part ? fmt::format("part ({} elements) of ", e.elements_wrong) : "";
  if (e.buckets_wrong.empty()) return text + "a bucket";
  return text + (e.buckets_wrong.size() == 1 ? "bucket " : "buckets ") + list_of(e.buckets_wrong);
}

std::string buckets_text_of_all(const MismatchEvidence& e) {
  if (e.buckets_wrong.empty()) return fmt::format("{} gradients", e.gradients_wrong);
  return (e.buckets_wrong.size() == 1 ? "bucket " : "buckets ") + list_of(e.buckets_wrong);
}

Found unsummed_bucket(const CauseFacts& facts) {
  if (facts.active_ranks < 2) return {};  // its own part is then all there is
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->own_undivided && e->gradients_wrong > 0 && !e->local_wrong)
      return Cause{"missing_bucket",
                   fmt::format("{} was never synchronized: on rank {} its gradients are the rank's "
                               "own, as its backward computed them",
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
    if (e->lane != Lane::replay) continue;
    if (e->missing_rank < 0 || (missing >= 0 && e->missing_rank != missing)) return {};
    missing = e->missing_rank;
  }
  if (missing < 0 || verdict_of(facts, Lane::replica) == LaneVerdict::fail) return {};
  return Cause{"missing_gradient",
               fmt::format("{} of {} gradients are the golden run's without what rank {} adds",
                           facts.first == nullptr ? 0 : facts.first->gradients_wrong,
                           facts.first == nullptr ? 0 : facts.first->gradients_total, missing)};
}

// By another factor than 1 / ranks, if this is all that there is of it.
Found unsummed_and_scaled(const CauseFacts& facts) {
  if (facts.active_ranks < 2) return {};
  for (const auto& [rank, e] : facts.witnesses)
    if (e->own_ratio != 0 && !e->local_wrong)
      return Cause{"missing_bucket",
                   fmt::format("{} was never summed: on rank {} its gradients are {:.4g} x the "
                               "rank's own",
                               buckets_text(*e), rank, e->own_ratio)};
  return {};
}

Found misplaced(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->misplaced)
      return Cause{
          "misplaced_gradient",
          fmt::format("on rank {}, {} wrong elements in {} hold values that the golden run "
                      "has in other places",
                      rank, e->elements_wrong, buckets_text_of_all(*e))};
  for (const auto& [rank, e] : facts.witnesses)
    if (e->own_misplaced)
      return Cause{"misplaced_gradient",
                   fmt::format("what rank {} adds to {} elements in {} belongs in other places",
                               rank, e->elements_wrong, buckets_text_of_all(*e))};
  return {};
}

Found of_step_before(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->step_before)
      return Cause{"stale_gradient",
                   fmt::format("on rank {}, {} of {} gradients are those of the step before", rank,
                               e->gradients_wrong, e->gradients_total)};
  return {};
}

const char* type_with(int64_t bits) {
  return bits <= 8 ? "bfloat16" : bits <= 11 ? "float16" : "float32";
}

Found rounded_early(const CauseFacts& facts) {
  const MismatchEvidence* e = facts.first;
  if (e == nullptr || e->significant_bits == 0) return {};
  return Cause{
      "precision",
      fmt::format("all wrong gradients have at most {} significant bits: they were rounded "
                  "to {} on their way",
                  e->significant_bits, type_with(e->significant_bits))};
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

// Values that another order of addition can make, and one damaged copy of one element cannot.
bool by_order_on_ranks(const CauseFacts& facts) {
  bool seen = false;
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->lane != Lane::replay) continue;
    if (!e->within_rounding || e->elements_wrong < 2) return false;
    seen = true;
  }
  return seen && verdict_of(facts, Lane::float64) != LaneVerdict::fail;
}

Found another_order_on_ranks(const CauseFacts& facts) {
  const bool replicas_part =
      on_some_ranks_only(facts) || verdict_of(facts, Lane::replica) == LaneVerdict::fail;
  if (!replicas_part || !by_order_on_ranks(facts)) return {};
  return Cause{"order_only",
               fmt::format("the same addends in another order on {}: nothing is farther off than "
                           "rounding, and ranks differ",
                           ranks_in_words(facts.ranks))};
}

Found another_order(const CauseFacts& facts) {
  const MismatchEvidence* e = facts.first;
  if (e == nullptr || on_some_ranks_only(facts) ||
      verdict_of(facts, Lane::replica) == LaneVerdict::fail)
    return {};
  if (e->lane != Lane::replay && e->lane != Lane::exact && e->lane != Lane::invariant) return {};
  const std::optional<LaneVerdict> float64 = verdict_of(facts, Lane::float64);
  if (float64 == LaneVerdict::pass)
    return Cause{"order_only", "the same addends in another order (lane float64 passes)"};
  if (float64 == LaneVerdict::fail || e->max_ulp > kOrderUlpMax) return {};
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
  return Cause{
      "stale_gradient",
      fmt::format("{} has a gradient, where the golden run has none: it was not used in this step",
                  e->tensor)};
}

Found lost_accumulation(const CauseFacts& facts) {
  if (facts.accumulation_problem.empty()) return {};
  return Cause{"missing_gradient", facts.accumulation_problem};
}

}  // namespace

std::optional<LaneVerdict> verdict_of(const CauseFacts& facts, Lane lane) {
  for (const LaneResult& result : facts.lanes)
    if (result.lane == lane) return result.verdict;
  return std::nullopt;
}

Found not_finite(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses) {
    if (e->state_kind != facts.state_kind) continue;
    const bool golden = e->golden_not_finite > 0 || !std::isfinite(e->golden_value);
    if (e->not_finite == 0 && std::isfinite(e->run_value)) continue;
    if (!golden)
      return Cause{"overflow", "the run's value is not finite where the golden run's is"};
    return Cause{"overflow",
                 "neither the run's values nor the golden run's are finite: the training diverges"};
  }
  return {};
}

Found flipped_bits(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->local_bits_flipped > 0)
      return Cause{
          "corrupted_bits",
          fmt::format("{} {} of rank {}'s own gradients flipped before the reduction",
                      e->local_bits_flipped, e->local_bits_flipped == 1 ? "bit" : "bits", rank)};
  const bool replicas_part =
      on_some_ranks_only(facts) || verdict_of(facts, Lane::replica) == LaneVerdict::fail;
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
  if (verdict_of(facts, Lane::float64) != LaneVerdict::fail) return {};
  const MismatchEvidence* e = facts.first;
  const bool replayed = verdict_of(facts, Lane::replay) == LaneVerdict::pass;
  // A defect of one gradient is no other function.
  const bool averaged = verdict_of(facts, Lane::replay) != LaneVerdict::fail && e != nullptr &&
                        2 * e->gradients_wrong >= e->gradients_total && averaged_rightly(facts);
  if (!replayed && !averaged) return {};
  if (replayed && facts.compresses)
    return Cause{"precision",
                 "lane replay passes, the full batch differs: the comm hook leaves out what its "
                 "matrices cannot hold"};
  // Another function shows from the first step.
  if (!replayed && facts.step > facts.first_step)
    return Cause{"unknown",
                 "each rank has the average of what all ranks computed, which was right in the "
                 "steps before: some rank has computed something else (lane replay says which)"};
  if (float64_distance(facts) < kOtherFunction)
    return Cause{
        "unknown",
        fmt::format("{} and the full batch is little beyond the bound: rounding that "
                    "the model makes large (a gradient that is zero but for rounding under "
                    "Adam, normalization over few values), or a very small defect",
                    replayed ? "lane replay passes" : "ranks have the average of theirs")};
  return Cause{"not_shard_decomposable",
               fmt::format("{}, the full batch differs: averaging over shards is another function "
                           "than the loss of the whole batch",
                           replayed ? "lane replay passes"
                                    : "each rank has the average of what all ranks computed")};
}

Cause unknown_cause(const CauseFacts& facts) {
  for (const auto& [rank, e] : facts.witnesses)
    if (e->local_wrong)
      return {"unknown",
              fmt::format("rank {}'s gradients differ from the golden run's before the reduction "
                          "already, and are no other rank's",
                          rank)};
  if (facts.first == nullptr) return {"unknown", "the records hold no evidence of the values"};
  const MismatchEvidence& e = *facts.first;
  if (e.elements_wrong == 1)
    return {"unknown", fmt::format("one element differs, on {}", ranks_in_words(facts.ranks))};
  return {"unknown", fmt::format("{} of {} gradients differ, by no common factor",
                                 e.gradients_wrong, e.gradients_total)};
}

Found cause_of_gradients(const CauseFacts& facts) {
  // From the most specific to the least.
  for (auto rule :
       {clipping,     left_over,      lost_accumulation,   missing_part,   unsummed_bucket,
        absent,       one_ratio,      one_ranks_share,     own_divisor,    other_collective_cause,
        not_finite,   of_step_before, unsummed_and_scaled, misplaced,      another_order_on_ranks,
        flipped_bits, rounded_early,  other_weights,       other_function, another_order})
    if (auto cause = rule(facts)) return cause;
  return {};
}

}  // namespace lockstep
