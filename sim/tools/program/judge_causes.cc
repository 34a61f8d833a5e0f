#include "sim/tools/program/judge_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge_inputs.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

bool near(double value, double expected) {
  return std::abs(value / expected - 1) < kProgramRatioBound;
}

// What the facts of a step say of gradients that were not, or not all, synchronized.
ProgramCause unsynchronized(const ProgramStep& step, const std::string& parameter) {
  if (holds(step.replaced, parameter)) return ProgramCause::parameter_replaced;
  if (holds(step.unfrozen, parameter)) return ProgramCause::unfrozen_after_ddp;
  if (step.ddp_forwards > 0 && (is_nameless(parameter) || holds(step.unheld, parameter)))
    return ProgramCause::outside_ddp;
  if (step.unsynced) return ProgramCause::no_sync_at_step;
  if (!step.unused.empty()) return ProgramCause::unused_parameter;
  if (holds(step.unheld, parameter) && holds(step.unreduced, parameter))
    return ProgramCause::outside_ddp;
  if (step.ddp_forwards < step.forwards || holds(step.written_past, parameter))
    return ProgramCause::module_past_ddp;
  if (holds(step.unsynced_alone, parameter)) return ProgramCause::used_unsynced_alone;
  if (step.ddp_forwards > 0 && holds(step.by_grad, parameter)) return ProgramCause::past_hooks;
  if (step.ddp_forwards > 0 && std::any_of(step.names.begin(), step.names.end(), is_nameless))
    return ProgramCause::outside_ddp;
  if (step.written_in_flight) return ProgramCause::written_in_flight;
  if (step.not_waited) return ProgramCause::not_waited;
  if (holds(step.summed_early, parameter)) return ProgramCause::summed_early;
  if (holds(step.unreduced, parameter)) return ProgramCause::not_reduced;
  if (holds(step.partly, parameter)) return ProgramCause::some_ranks_summed;
  if (holds(step.written_late, parameter)) return ProgramCause::second_backward;
  if (holds(step.own_in_part, parameter)) return ProgramCause::not_reduced;
  return step.ddp_forwards > 0 && step.backwards > step.ddp_forwards ? ProgramCause::second_backward
                                                                     : ProgramCause::unknown;
}

// What a sum left was the same on both ranks, and what the optimizer found is not.
bool changed_since_sum(const ProgramStep& a, const ProgramStep& b, const std::string& parameter) {
  const auto own = a.left_by_sums.find(parameter), other = b.left_by_sums.find(parameter);
  const auto at = std::find(a.names.begin(), a.names.end(), parameter) - a.names.begin();
  const auto i = static_cast<size_t>(at);
  return own != a.left_by_sums.end() && other != b.left_by_sums.end() &&
         own->second == other->second && i < a.names.size() && i < b.grad_hashes.size() &&
         a.grad_hashes[i] != b.grad_hashes[i];
}

// Are all gradients of b those of a, times one number that is not 1?
bool multiples(const ProgramStep& a, const ProgramStep& b) {
  if ((largest_norm(a.grads) == 0) != (largest_norm(b.grads) == 0)) return true;  // zeroed by one
  if (a.grads.size() < 2 || b.grads.empty()) return false;
  const double floor = largest_norm(a.grads), factor = sketch_ratio(b.grads[0], a.grads[0]);
  if (floor == 0 || factor == 0 || near(factor, 1)) return false;
  for (size_t i = 0; i < std::min(a.grads.size(), b.grads.size()); ++i) {
    if (sketch_distance(scaled_by(a.grads[i], factor), b.grads[i],
                        floor * std::abs(factor) * kProgramBound) > kProgramBound)
      return false;
  }
  return true;
}

// Did one rank load what the other did not, since its last step?
bool loaded_by_one(const ProgramRank& a, const ProgramRank& b, size_t step,
                   int64_t ProgramStep::*loads) {
  const auto since = [&](const ProgramRank& rank) {
    return rank.steps[step].*loads - (step == 0 ? 0 : rank.steps[step - 1].*loads);
  };
  return since(a) != since(b);
}

bool uneven(const Ranks& ranks, size_t step) {
  return std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    return rank.steps[step].samples.size() != ranks[0].steps[step].samples.size();
  });
}

// Means over different numbers of targets, on several ranks or one after another.
bool other_targets(const Ranks& ranks, size_t step) {
  const std::vector<double>& first = ranks[0].steps[step].targets;
  for (const ProgramRank& rank : ranks)
    for (const double count : rank.steps[step].targets)
      if (!first.empty() && count != first[0]) return true;
  return false;
}

bool frozen_since(const Ranks& ranks, size_t step, const std::string& parameter) {
  return std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    return holds(rank.steps[step].refrozen, parameter);
  });
}

bool other_constants(const Ranks& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](const ProgramRank& rank) { return rank.constants != ranks[0].constants; });
}

// What hooks of the script made of a gradient before ranks added theirs: nothing, where each rank's
// was multiplied by the same number.
ProgramCause hooked_cause(const Ranks& ranks, size_t step, const std::string& parameter) {
  bool found = false, multiples = true, alike = true;
  const auto of = [&](const ProgramRank& rank, const std::string& name) -> std::optional<double> {
    for (const HookedGradient& one : rank.steps[step].hooked)
      if (one.name == name) return one.factor;
    return 1.0;
  };
  const std::optional<double> first = of(ranks[0], parameter);
  for (const ProgramRank& rank : ranks) {
    const std::optional<double> own = of(rank, parameter);
    found |= own != 1.0;
    alike &= own && first && near(*own, *first);
    for (const std::string& name : rank.steps[step].names) {
      const std::optional<double> other = of(rank, name);
      multiples &= own && other && near(*own, *other);
    }
  }
  if (!found || alike) return ProgramCause::none;
  return multiples ? ProgramCause::scaled_apart : ProgramCause::clipped_before_sum;
}

// Of parameters that DistributedDataParallel holds and the optimizer does not update, as a teacher
// within the model that follows it: those that it does update are alike.
bool other_frozen_part(const Ranks& ranks, size_t step) {
  const ProgramStep& first = ranks[0].steps[step];
  return std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    const ProgramStep& own = rank.steps[step];
    return own.models_hash != first.models_hash && own.before_hash == first.before_hash;
  });
}

// DistributedDataParallel made them alike when it took the module.
bool is_held(const ProgramStep& step, const std::string& parameter) {
  return step.ddp_forwards > 0 && !is_nameless(parameter) && !holds(step.unheld, parameter) &&
         !holds(step.replaced, parameter);
}

bool changed(const Ranks& ranks, size_t step, const std::string& parameter) {
  return std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    return holds(rank.steps[step].changed, parameter);
  });
}

constexpr double kClippingBound = 1e-3;  // clip_grad_norm_() adds a little to the norm

// What was clipped was the sum over ranks, so that the limit was divided with it.
bool clipped_sum(const Ranks& ranks, const ProgramRank& one, size_t step, double factor) {
  const auto world = static_cast<double>(ranks.size());
  const auto norms = factor_of_norms(ranks[0].steps[step], one.steps[step]);
  return norms && near(*norms, world) && std::abs(factor * world - 1) < kClippingBound;
}

// By 1 / world, since backward: not by what was made of the loss.
ProgramCause divided_cause(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i) {
  const ProgramStep& a = ranks[0].steps[step];
  const auto world = static_cast<double>(ranks.size());
  for (const HookedGradient& own : a.multiplied)
    if (own.name == a.names[i] && own.factor && near(*own.factor, 1 / world))
      return ProgramCause::divided_twice;
  if (clipped_sum(ranks, one, step, 1 / world)) return ProgramCause::clipped_before_sum;
  if (one.summed) return ProgramCause::summed_loss;
  const bool gathered = a.gathered || a.gathered_inside;
  return gathered ? ProgramCause::gathered_as_constants : ProgramCause::divided_twice;
}

// It divided by their number, and nothing but a clipping came after: what it was given is as many
// times too large.
bool is_averaged_by_ddp(const Ranks& ranks, size_t step, size_t i) {
  const ProgramStep& a = ranks[0].steps[step];
  const auto left = a.left_by_sums.find(a.names[i]);
  const bool kept = left != a.left_by_sums.end() && left->second == a.grad_hashes[i];
  return is_held(a, a.names[i]) && !a.unsynced && ranks[0].comm_hook.empty() &&
         (kept || !a.norms.empty());
}

// Alike until the last step, which was right: this one is the first that computes with others.
bool buffers_parted(const Ranks& ranks, size_t step) {
  const auto differ = [&](size_t at) {
    return std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
      return rank.steps[at].buffer_hash != ranks[0].steps[at].buffer_hash;
    });
  };
  const auto never_change = [](const ProgramRank& rank) {
    return std::all_of(rank.steps.begin(), rank.steps.end(), [&](const ProgramStep& one) {
      return one.buffer_hash == rank.steps[0].buffer_hash;
    });
  };
  if (step == 0)  // as they were made
    return differ(0) && std::all_of(ranks.begin(), ranks.end(), never_change);
  return differ(step - 1) && (step == 1 || !differ(step - 2));
}

}  // namespace

bool loses_gradients_in_gather(const ProgramStep& step, const std::vector<std::string>& missing) {
  return step.gathered && missing == step.unused && 2 * missing.size() > step.names.size();
}

bool are_times_ranks(const Ranks& ranks, const ProgramRank& one, size_t step) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const auto world = static_cast<double>(ranks.size());
  if (largest_norm(a.grads) == 0 || largest_norm(b.grads) == 0 || !multiples(b, a)) return false;
  const double factor = sketch_ratio(a.grads[0], b.grads[0]);
  return near(factor, world) || near(factor, 1 / world);
}

bool is_nameless(const std::string& name) { return name.starts_with("parameter "); }

std::string parameter_of(const ProgramStep& step, size_t i) {
  return is_nameless(step.names[i]) ? step.names[i] : "parameter " + step.names[i];
}
size_t group_of(const ProgramStep& step, size_t i) {
  return i < step.groups.size() ? static_cast<size_t>(step.groups[i]) : 0;
}
bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool other_untrained(const Ranks& ranks, size_t step) {
  std::string first;  // of a rank that computed with one: an evaluation may be some rank's alone
  for (const ProgramRank& rank : ranks) {
    const std::string& own = rank.steps[step].untrained;
    if (!own.empty() && !first.empty() && own != first) return true;
    if (first.empty()) first = own;
  }
  return false;
}

bool other_untrained_on_one_device(const Ranks& ranks, const ProgramRank& one, size_t step) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const bool known = a.untrained_sketch && b.untrained_sketch;
  return known && !other_untrained(ranks, step) && !agree(a.untrained_sketch, b.untrained_sketch);
}

namespace {

// Of the group that has it, without its number.
std::vector<std::string> options_of(const ProgramStep& step, const std::string& parameter) {
  const auto at = std::find(step.names.begin(), step.names.end(), parameter) - step.names.begin();
  const std::string group = fmt::format("{} ", group_of(step, static_cast<size_t>(at)));
  std::vector<std::string> found;
  for (const std::string& option : step.options)
    if (option.starts_with(group)) found.push_back(option.substr(group.size()));
  return found;
}

// As after adding something of each rank's own and subtracting it again: no other first weights.
bool are_apart_by_rounding(const std::vector<Sketch>& a, const std::vector<Sketch>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), agree);
}

// Of weights that ranks begin with, and that nobody loaded.
ProgramCause cause_of_start(const ProgramStep& a, const ProgramStep& b,
                            const std::string& parameter) {
  if (are_apart_by_rounding(a.before, b.before))
    return a.backwards > 1 ? ProgramCause::own_weights : ProgramCause::changed_between_steps;
  return is_held(a, parameter) ? ProgramCause::changed_between_steps
                               : ProgramCause::different_start;
}

// After as many backwards as the other, one has made fewer steps: this one it made later.
bool left_out_steps(const ProgramRank& first, const ProgramRank& rank, size_t step) {
  const auto before = [&](const ProgramRank& one) {
    int64_t backwards = 0;
    for (size_t i = 0; i <= step; ++i) backwards += one.steps[i].backwards;
    return backwards;
  };
  return first.backwards == rank.backwards && before(first) != before(rank);
}

// Of gradients that differ between ranks, where nothing else explains it.
ProgramCause of_comm_hook(const ProgramRank& rank) {
  return rank.comm_hook.empty() ? ProgramCause::unknown : ProgramCause::hook_results_differ;
}

}  // namespace

ProgramCause replica_cause(const ProgramRank& first, const ProgramRank& rank, size_t step,
                           const std::string& parameter) {
  const ProgramStep &a = first.steps[step], &b = rank.steps[step];
  const bool other_weights = a.before_hash != b.before_hash;
  const bool apart = step == 0 && (a.before != b.before || other_weights);
  if ((apart || step > 0) && loaded_by_one(first, rank, step, &ProgramStep::model_loads))
    return ProgramCause::state_on_one_rank;
  if (apart) return cause_of_start(a, b, parameter);
  if (other_weights) return ProgramCause::changed_between_steps;
  if (a.grad_hashes != b.grad_hashes) {
    if (a.carried != b.carried) return ProgramCause::gradients_kept;
    if (multiples(a, b)) return ProgramCause::scaled_apart;
    if (!holds(a.by_grad, parameter) && changed_since_sum(a, b, parameter))
      return ProgramCause::changed_after_sum;
    if (a.sum_order != b.sum_order && a.unreduced == b.unreduced)
      return ProgramCause::summed_in_other_order;
    ProgramCause found = unsynchronized(a, parameter);
    if (found == ProgramCause::unknown) found = unsynchronized(b, parameter);
    if (found == ProgramCause::unknown && left_out_steps(first, rank, step))
      return ProgramCause::update_on_one_rank;
    return found == ProgramCause::unknown ? of_comm_hook(first) : found;
  }
  if (loaded_by_one(first, rank, step, &ProgramStep::optimizer_loads))
    return ProgramCause::state_on_one_rank;
  if (a.optimizer != b.optimizer) return ProgramCause::optimizer_made_anew;
  if (other_options(a, b, parameter)) return ProgramCause::other_options;
  if (a.state_before != b.state_before) return ProgramCause::state_changed;
  return a.drew_in_step || b.drew_in_step ? ProgramCause::drawn_in_update : ProgramCause::unknown;
}

bool other_options(const ProgramStep& a, const ProgramStep& b, const std::string& parameter) {
  return a.options != b.options || options_of(a, parameter) != options_of(b, parameter);
}

std::string other_option(const ProgramStep& a, const ProgramStep& b, const std::string& parameter,
                         const std::string& of) {
  const std::vector<std::string> own = options_of(a, parameter), other = options_of(b, parameter);
  if (a.options == b.options)
    for (size_t i = 0; i < std::min(own.size(), other.size()); ++i)
      if (own[i] != other[i])
        return fmt::format("{} has {} in its group, {} {}", parameter, own[i], of, other[i]);
  for (size_t i = 0; i < std::min(a.options.size(), b.options.size()); ++i) {
    if (a.options[i] == b.options[i]) continue;
    const auto value = [](const std::string& option) {
      return option.substr(option.find(' ') + 1);
    };
    return fmt::format("{} in group {}, {} {}", value(a.options[i]),
                       a.options[i].substr(0, a.options[i].find(' ')), of, value(b.options[i]));
  }
  return "they have other groups";
}

ProgramCause factor_cause(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i,
                          double factor) {
  const auto world = static_cast<double>(ranks.size());
  const auto parts = static_cast<double>(ranks[0].steps[step].backwards);
  if (near(factor, 1 / world)) return divided_cause(ranks, one, step, i);
  if (near(factor, world))
    return is_averaged_by_ddp(ranks, step, i) ? ProgramCause::scaled_by_ranks
                                              : ProgramCause::not_divided;
  if (parts > 1 && (near(factor, parts) || near(factor, 1 / parts)))
    return ProgramCause::accumulation_divided;
  return ProgramCause::none;
}

namespace {

// Where clip_grad_norm_() clipped on one side alone, or on both, its norms have the factor.
ProgramCause cause_behind_clipping(const Ranks& ranks, const ProgramRank& one, size_t step,
                                   size_t i) {
  const ProgramStep& a = ranks[0].steps[step];
  const auto factor = factor_of_norms(a, one.steps[step]);
  if (!factor) return ProgramCause::none;
  const ProgramCause cause = factor_cause(ranks, one, step, i, *factor);
  return may_divide_by_hand(a, cause) ? ProgramCause::none : cause;
}

}  // namespace

ProgramCause gradient_cause(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const double factor = sketch_ratio(a.grads[i], b.grads[i]);
  if (ranks.size() < 2) return ProgramCause::unknown;  // all of it is of one rank's batch
  if (a.grad_hashes[i] != ranks[1].steps[step].grad_hashes[i]) {
    const ProgramCause found = unsynchronized(a, a.names[i]);
    return found == ProgramCause::unknown ? of_comm_hook(ranks[0]) : found;
  }
  if (frozen_since(ranks, step, a.names[i])) return ProgramCause::frozen_after_ddp;
  if (std::any_of(ranks.begin(), ranks.end(),
                  [&](const ProgramRank& rank) { return rank.steps[step].carried != a.carried; }))
    return ProgramCause::gradients_kept;
  if (uneven(ranks, step)) return ProgramCause::uneven_batches;
  if (a.clipped_early) return ProgramCause::clipped_before_sum;
  if (const ProgramCause hooked = hooked_cause(ranks, step, a.names[i]);
      hooked != ProgramCause::none)
    return hooked;
  if (holds(a.no_sums, a.names[i])) return ProgramCause::no_sum;
  if (const ProgramCause found = factor_cause(ranks, one, step, i, factor);
      found != ProgramCause::none)
    return found;
  if (changed(ranks, step, a.names[i]) && !multiples(b, a))  // a sum of sums changes by a factor
    return ProgramCause::changed_before_sum;
  if (holds(a.reduced_again, a.names[i])) return ProgramCause::reduced_again;
  if (std::any_of(ranks.begin(), ranks.end(),
                  [&](const ProgramRank& rank) { return rank.steps[step].written_in_flight; }))
    return ProgramCause::written_in_flight;
  if (a.not_waited) return ProgramCause::not_waited;
  if (other_targets(ranks, step)) return ProgramCause::mean_of_means;
  const bool scaled = largest_norm(a.grads) > 0 && largest_norm(b.grads) > 0 && multiples(b, a);
  if (holds(a.partly, a.names[i]) && !scaled)  // a multiple of the whole is of all ranks
    return ProgramCause::some_ranks_summed;
  if (other_untrained(ranks, step) || other_frozen_part(ranks, step))
    return ProgramCause::own_frozen_model;
  if (other_untrained_on_one_device(ranks, one, step)) return ProgramCause::other_frozen_model;
  if (other_constants(ranks)) return ProgramCause::own_constants;
  if (one.batch_norms > 0) return ProgramCause::local_batch_norm;
  if (buffers_parted(ranks, step)) return ProgramCause::own_buffers;
  if (holds(a.unreduced, a.names[i])) return ProgramCause::not_reduced;
  if (a.unsynced && holds(a.shards, a.names[i])) return ProgramCause::no_sync_at_step;
  if (a.gathered) return ProgramCause::gathered_as_constants;
  if (!scaled) return ProgramCause::unknown;
  if (clipped_sum(ranks, one, step, factor)) return ProgramCause::clipped_before_sum;
  const ProgramCause clipped = cause_behind_clipping(ranks, one, step, i);
  return clipped == ProgramCause::none ? ProgramCause::scaled_by_ranks : clipped;
}

}  // namespace lockstep
