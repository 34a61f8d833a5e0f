#include "sim/tools/program/judge_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

using Samples = std::set<std::string>;

// What a rank trains on until it has a sample again.
Samples first_epoch(const ProgramRank& rank) {
  Samples had;
  for (const ProgramStep& step : rank.steps) {
    for (const std::string& sample : step.samples)
      if (had.contains(sample)) return had;
    const size_t before = had.size();
    had.insert(step.samples.begin(), step.samples.end());
    if (had.size() < before + step.samples.size()) return {};
  }
  return had;
}

bool is_times(const Sketch& a, Sketch b, double factor) {
  if (b)
    for (double& value : *b) value *= factor;
  return sketch_distance(a, b, 0) <= kProgramBound;
}

ProgramFinding dealt_otherwise(const std::vector<ProgramRank>& ranks, const std::string& words) {
  ProgramFinding found;
  found.verdict = Verdict::inconclusive;
  found.cause = ProgramCause::other_shuffles;
  found.step = 1;
  found.entry = "samples";
  found.line = ranks[0].steps[0].line;
  found.words = "all steps agree with one device that is given the ranks' samples, but " + words;
  return found;
}

}  // namespace

ProgramFinding judge_pool(const std::vector<ProgramRank>& ranks, const ProgramRank& alone) {
  const Samples pool = first_epoch(alone);
  std::map<std::string, size_t> owners;
  size_t dealt = 0;
  const size_t each = first_epoch(ranks[0]).size();
  for (const ProgramRank& rank : ranks) {
    if (rank.steps.size() < 2) return {};
    const Samples own = first_epoch(rank);
    if (own.size() != each) return {};  // they draw samples again
    for (const std::string& sample : own) ++owners[sample];
    dealt += own.size();
  }
  const auto is_of_pool = [&](const auto& owned) { return pool.contains(owned.first); };
  if (pool.empty() || dealt > pool.size() || owners.empty()) return {};
  if (!std::all_of(owners.begin(), owners.end(), is_of_pool)) return {};
  if (owners.size() < dealt)
    return dealt_otherwise(
        ranks,
        fmt::format("of {} samples, which one device trains on once each, {} are dealt to several "
                    "ranks and {} to none",
                    pool.size(),
                    std::count_if(owners.begin(), owners.end(),
                                  [](const auto& owned) { return owned.second > 1; }),
                    pool.size() - owners.size()));
  return {};
}

ProgramFinding judge_first_weights(const std::vector<ProgramRank>& ranks,
                                   const ProgramRank& alone) {
  if (ranks[0].steps.empty() || alone.steps.empty()) return {};
  const ProgramStep &a = ranks[0].steps[0], &b = alone.steps[0];
  std::optional<std::pair<size_t, double>> scaled;
  bool some_alike = false;
  for (size_t i = 0; i < std::min(a.before.size(), b.before.size()); ++i) {
    const double factor = sketch_ratio(a.before[i], b.before[i]);
    if (!is_times(a.before[i], b.before[i], factor)) return {};  // another number was drawn
    if (factor == 0) continue;
    if (std::abs(factor - 1) <= kProgramRatioBound)
      some_alike = true;
    else if (!scaled)
      scaled = {i, factor};
  }
  if (!scaled || !some_alike) return {};
  ProgramFinding found = inconclusive(
      fmt::format("all steps agree with one device that is given the ranks' first weights, but "
                  "ranks start with {:.6g} times its own values of {}: do they depend on the "
                  "number of ranks?",
                  scaled->second, a.names[scaled->first]));
  found.step = 1;
  return found;
}

}  // namespace lockstep
