#include "sim/tools/program/drill_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/tools/program/judge_names.h"
#include "sim/tools/program/rank_weights.h"

namespace lockstep {
namespace {

// The recordings of so many ranks; empty, with a reason, where one cannot be read.
std::vector<DrillRank> read_drill(const std::string& folder, size_t world, std::string* why) {
  std::vector<DrillRank> found;
  for (size_t rank = 0; rank < world; ++rank) {
    const std::string path = fmt::format("{}/drill-{}.jsonl", folder, rank);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      *why = fmt::format("rank {} did not end the step", rank);
      return {};
    }
    auto one = read_drill_rank(path);
    if (!one) {
      *why = to_text(one.errors()[0]);
      return {};
    }
    found.push_back(std::move(one.value()));
  }
  return found;
}

// The optimizer finds what the backward of DistributedDataParallel left.
bool is_left_by_sum(const ProgramStep& step, const std::string& parameter) {
  const auto left = step.left_by_sums.find(parameter);
  const auto at = std::find(step.names.begin(), step.names.end(), parameter) - step.names.begin();
  const auto i = static_cast<size_t>(at);
  return left != step.left_by_sums.end() && i < step.grad_hashes.size() &&
         left->second == step.grad_hashes[i];
}

}  // namespace

DrillFinding drill_runs(const std::vector<ProgramRank>& ranks, const std::string& folder,
                        const ProgramRank& one, const std::string& one_folder, int64_t step) {
  DrillFinding none;
  none.step = step;
  DrillFacts facts;
  facts.step = step;
  facts.ranks = read_drill(folder, ranks.size(), &none.words);
  const std::vector<DrillRank> alone = read_drill(one_folder, 1, &none.words);
  if (facts.ranks.empty() || alone.empty()) return none;
  facts.one = alone[0];
  const auto at = static_cast<size_t>(step - 1);
  for (const ProgramRank& rank : ranks) facts.steps.push_back(rank.steps.at(at));
  facts.one_step = one.steps.at(at);
  take_names_of(facts.steps[0], facts.one_step, &facts.one);
  facts.one_step.names = facts.steps[0].names;
  DrillFinding found = judge_drill(facts);
  found.weights = rank_weights(facts.ranks, facts.one).value_or(std::vector<double>());
  found.branch = other_branch(facts.ranks, facts.one);
  if (found.stage == DrillStage::forward)
    found.changed_apart = changed_apart(facts.ranks, facts.one, found.call);
  if (found.stage == DrillStage::reduction && is_left_by_sum(facts.steps[0], found.parameter))
    found.comm_hook = ranks[0].comm_hook;
  found.limited = limited_norms(facts.ranks, facts.steps[0]);
  found.limited_each = limit_of_each_parameter(facts.ranks, facts.steps[0]);
  return found;
}

}  // namespace lockstep
