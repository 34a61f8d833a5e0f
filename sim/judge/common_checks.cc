#include "sim/judge/common_checks.h"

#include <cmath>
#include <map>
#include <optional>

#include "golden/state.h"
#include "scenarios/split.h"
#include "sim/judge/losses.h"

namespace lockstep {
namespace {

constexpr double kLossTolerance = 0.05;
constexpr double kNormTolerance = 0.08;

// What is not a number is off as well.
bool is_off(double value, double reference, double tolerance) {
  return !(std::abs(value - reference) <= tolerance * std::abs(reference));
}

std::optional<bool> loss_is_off(const RunPlan& plan, const std::vector<RankView>& ranks) {
  Split split(plan.scenario);
  std::optional<bool> off;
  for (const auto& [step, golden] : ranks[0].golden_losses)
    if (const auto row = loss_row(plan, ranks, step, &split))
      off = off.value_or(false) || is_off(row->all_ranks, golden, kLossTolerance);
  return off;
}

std::optional<bool> weights_part(const std::vector<RankView>& ranks) {
  constexpr auto kWeights = static_cast<size_t>(StateKind::parameter);
  const auto& chain = ranks[0].chains[kWeights];
  const std::map<int64_t, uint64_t> first(chain.begin(), chain.end());
  std::optional<bool> part;
  for (size_t other = 1; other < ranks.size(); ++other)
    for (const auto& [step, hash] : ranks[other].chains[kWeights]) {
      const auto known = first.find(step);
      if (step > 0 && known != first.end()) part = part.value_or(false) || hash != known->second;
    }
  return part;
}

std::optional<bool> norm_is_off(const std::vector<RankView>& ranks) {
  std::optional<bool> off;
  for (const auto& [step, ratio] : ranks[0].norm_ratios)
    off = off.value_or(false) || is_off(ratio, 1, kNormTolerance);
  return off;
}

const char* word_of(const std::optional<bool>& found) {
  return !found ? "not_run" : *found ? "found" : "missed";
}

}  // namespace

void decide_common_checks(const RunPlan& plan, const std::vector<RankView>& ranks,
                          RunResult* result) {
  if (!plan.scenario.common_checks || ranks.empty()) return;
  const auto& close = ranks[0].close;
  result->common_checks = {{"loss_5_percent", word_of(loss_is_off(plan, ranks))},
                           {"weights_hash", word_of(weights_part(ranks))},
                           {"assert_close", word_of(close ? std::optional(!*close) : std::nullopt)},
                           {"gradient_norm_8_percent", word_of(norm_is_off(ranks))}};
}

}  // namespace lockstep
