#include "sim/tools/program/judge_lists.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/judge_causes.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Empty: not all ranks know.
std::vector<std::string> models_before(const Ranks& ranks, size_t step) {
  std::vector<std::string> hashes;
  for (const ProgramRank& rank : ranks) {
    if (step >= rank.steps.size() || rank.steps[step].models_hash.empty()) return {};
    hashes.push_back(rank.steps[step].models_hash);
  }
  return hashes;
}

bool are_alike(const std::vector<std::string>& hashes) {
  return std::all_of(hashes.begin(), hashes.end(),
                     [&](const std::string& hash) { return hash == hashes[0]; });
}

bool updates(const ProgramRank& rank, size_t step, const std::string& name) {
  return holds(rank.steps[step].names, name);
}

// In the order of the ranks that have it; empty: there is none.
std::string first_not_shared(const Ranks& ranks, size_t step) {
  for (const ProgramRank& rank : ranks)
    for (const std::string& name : rank.steps[step].names)
      for (const ProgramRank& other : ranks)
        if (!is_nameless(name) && !updates(other, step, name)) return name;
  return "";
}

}  // namespace

std::optional<ProgramFinding> judge_lists(const Ranks& ranks, size_t step) {
  const std::vector<std::string> before = models_before(ranks, step),
                                 after = models_before(ranks, step + 1);
  if (before.empty() || after.empty() || !are_alike(before) || are_alike(after))
    return std::nullopt;
  const std::string name = first_not_shared(ranks, step);
  if (name.empty()) return std::nullopt;
  std::vector<int64_t> without;
  for (const ProgramRank& rank : ranks)
    if (!updates(rank, step, name)) without.push_back(rank.rank);
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = ProgramCause::other_parameters;
  found.step = static_cast<int64_t>(step + 1);
  found.entry = "parameter " + name;
  found.line = ranks[0].steps[step].line;
  found.words = fmt::format("the {} of {} {} not have it, and the models differ from then on",
                            without.size() == 1 ? "optimizer" : "optimizers", ranks_text(without),
                            without.size() == 1 ? "does" : "do");
  return found;
}

}  // namespace lockstep
