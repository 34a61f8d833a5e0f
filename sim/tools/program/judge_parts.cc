#include "sim/tools/program/judge_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/tools/program/judge_causes.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

bool exchanges(const ProgramRank& rank) {
  return std::any_of(rank.steps.begin(), rank.steps.end(),
                     [](const ProgramStep& step) { return step.exchanges > 0; });
}

// Of the first step of an optimizer.
bool starts_apart(const ProgramStep& a, const ProgramStep& b, size_t parameter) {
  if (!a.before.empty() && !b.before.empty()) return a.before[parameter] != b.before[parameter];
  return a.before_hash != b.before_hash && a.param_hashes[parameter] != b.param_hashes[parameter];
}

bool is_summed_over_all(const ProgramStep& step, const std::string& parameter) {
  return !holds(step.unreduced, parameter) && !holds(step.partly, parameter);
}

bool starts_apart(const Ranks& ranks, size_t step, size_t parameter) {
  return std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    return starts_apart(ranks[0].steps[step], rank.steps[step], parameter);
  });
}

size_t sums_over_all(const Ranks& ranks, size_t step, const std::string& parameter) {
  return static_cast<size_t>(std::count_if(
      ranks.begin(), ranks.end(),
      [&](const ProgramRank& rank) { return is_summed_over_all(rank.steps[step], parameter); }));
}

// Each rank is given a part of what others computed, as the owners of tables or experts deal it
// out.
bool deals_out(const ProgramRank& rank) {
  return std::any_of(rank.steps.begin(), rank.steps.end(),
                     [](const ProgramStep& step) { return step.dealt_out > 0; });
}

// Seeded alike, each rank begins with what others have of another table.
bool is_part(const Ranks& ranks, size_t step, size_t parameter) {
  const std::string& name = ranks[0].steps[step].names[parameter];
  if (sums_over_all(ranks, step, name) > 0) return false;
  return starts_apart(ranks, step, parameter) || std::all_of(ranks.begin(), ranks.end(), deals_out);
}

// All ranks have these names in this step. Empty: there is none.
std::string first_part(const Ranks& ranks, size_t step) {
  if (!std::all_of(ranks.begin(), ranks.end(), exchanges)) return "";
  const ProgramStep& first = ranks[0].steps[step];
  for (size_t i = 0; i < first.names.size(); ++i)
    if (is_part(ranks, step, i))
      return fmt::format(
          "ranks {} {}, do not sum its gradient over all of them, and {} within the forward: each "
          "seems to hold a part of one model (tensor or expert parallel), which cannot be compared",
          starts_apart(ranks, step, i) ? "start with different values of" : "update",
          first.names[i],
          starts_apart(ranks, step, i) ? "exchange results" : "scatter results to each other");
  return "";
}

// A rank's gradient of its shard may begin where that of the whole does, which was summed.
std::string first_shard(const Ranks& ranks, size_t step) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps[step].samples.empty() || rank.steps[step].ddp_forwards > 0) return "";
  const ProgramStep& first = ranks[0].steps[step];
  for (size_t i = 0; i < first.names.size(); ++i)
    if (is_nameless(first.names[i]) && starts_apart(ranks, step, i) &&
        sums_over_all(ranks, step, first.names[i]) < ranks.size())
      return fmt::format(
          "each rank's optimizer has a {} of its own that is in no model, and does not sum its "
          "gradient: it seems to update a shard of the parameters, which cannot be compared",
          first.names[i]);
  return "";
}

bool is_updated(const ProgramStep& step, size_t parameter) { return !!step.grads[parameter]; }

// In this step every parameter is updated by some ranks, and differs only where it is not by all.
bool is_shared_out(const Ranks& ranks, size_t step) {
  const ProgramStep& first = ranks[0].steps[step];
  bool some = false;
  for (size_t i = 0; i < first.names.size(); ++i) {
    const auto updaters =
        static_cast<size_t>(std::count_if(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
          return is_updated(rank.steps[step], i);
        }));
    if (updaters == 0) return false;
    some |= updaters < ranks.size();
    for (const ProgramRank& rank : ranks)
      if (updaters == ranks.size() && rank.steps[step].param_hashes[i] != first.param_hashes[i])
        return false;
  }
  return some;
}

// Neither DistributedDataParallel nor a sum of the script's makes it what others have.
bool is_left_alone(const ProgramStep& step, size_t parameter) {
  const std::string& name = step.names[parameter];
  return holds(step.unreduced, name) || (holds(step.unheld, name) && !step.grads[parameter]);
}

// Names that the ranks left with other values; all of them are left alone, else empty.
std::vector<size_t> parted_alone(const Ranks& ranks, size_t step) {
  const ProgramStep& first = ranks[0].steps[step];
  std::vector<size_t> parted;
  for (size_t i = 0; i < first.names.size(); ++i) {
    const auto is_other = [&](const ProgramRank& rank) {
      return rank.steps[step].param_hashes[i] != first.param_hashes[i];
    };
    if (std::none_of(ranks.begin(), ranks.end(), is_other)) continue;
    for (const ProgramRank& rank : ranks)
      if (!is_left_alone(rank.steps[step], i)) return {};
    parted.push_back(i);
  }
  return parted;
}

// 0: it made no step.
int64_t elements_of(const ProgramRank& rank, int64_t optimizer) {
  for (const ProgramStep& step : rank.steps)
    if (step.optimizer == optimizer && step.elements > 0) return step.elements;
  return 0;
}

bool trains(const ProgramStep& step, size_t parameter) {
  return step.grads[parameter] && step.grads[parameter]->back() > 0;
}

// In all steps of the optimizer one and the same rank has a gradient of it.
bool has_one_user(const Ranks& ranks, int64_t optimizer, size_t parameter) {
  std::set<int64_t> users;
  for (const ProgramRank& rank : ranks)
    for (const ProgramStep& step : rank.steps)
      if (step.optimizer == optimizer && parameter < step.grads.size() && trains(step, parameter))
        users.insert(rank.rank);
  return users.size() == 1;
}

}  // namespace

Ranks ranks_of_own_batches(const Ranks& ranks) {
  Ranks first;
  for (const ProgramRank& rank : ranks) {
    if (rank.parts != ranks[0].parts) return ranks;
    if (rank.part == 0) first.push_back(rank);
  }
  const int64_t parts = ranks[0].parts, size = std::ssize(ranks);
  return parts > 1 && size % parts == 0 && size / parts == std::ssize(first) ? first : ranks;
}

std::string parts_that_one_device_has(const Ranks& ranks, const ProgramRank& one, size_t step) {
  for (const ProgramRank& rank : ranks)
    if (step >= rank.steps.size() || rank.steps[step].names != ranks[0].steps[step].names)
      return "";
  const std::vector<size_t> parted = parted_alone(ranks, step);
  if (parted.empty()) return "";
  const ProgramStep& first = ranks[0].steps[step];
  const int64_t whole = elements_of(one, first.optimizer);
  const bool has_more = std::all_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    return elements_of(rank, first.optimizer) < whole;
  });
  if (has_more)
    return fmt::format(
        "one device updates {} numbers and rank 0 {} of them: each rank seems to have parameters, "
        "as {}, that no other rank has, which cannot be compared",
        whole, elements_of(ranks[0], first.optimizer), first.names[parted[0]]);
  if (!std::all_of(parted.begin(), parted.end(),
                   [&](size_t i) { return has_one_user(ranks, first.optimizer, i); }))
    return "";
  return fmt::format(
      "one rank alone trains {}, and no other uses it: each seems to hold a part of one model, "
      "which cannot be compared",
      first.names[parted[0]]);
}

std::string owners_of_parameters(const Ranks& ranks) {
  const size_t steps = ranks[0].steps.size();
  for (size_t step = 0; step < steps; ++step) {
    const ProgramStep& first = ranks[0].steps[step];
    for (const ProgramRank& rank : ranks) {
      if (rank.steps.size() != steps || rank.steps[step].names != first.names) return "";
      if (step > 0 && rank.steps[step].before_hash != first.before_hash) return "";
    }
    if (!is_shared_out(ranks, step)) return "";
  }
  if (steps < 2) return "";
  return "each rank updates some of the parameters, the others have no gradient there, and all "
         "have the same values before the next step: their owners seem to send them, which "
         "cannot be compared";
}

std::string parts_of_one_model(const Ranks& ranks) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != ranks[0].steps.size()) return "";
  std::set<int64_t> begun;
  for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
    const ProgramStep& first = ranks[0].steps[step];
    if (!begun.insert(first.optimizer).second) continue;
    for (const ProgramRank& rank : ranks)
      if (rank.steps[step].names != first.names) return "";
    std::string why = first_part(ranks, step);
    if (why.empty()) why = first_shard(ranks, step);
    if (!why.empty()) return why;
  }
  return "";
}

}  // namespace lockstep
