#include "sim/judge/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scenarios/scenario.h"

namespace lockstep {
namespace {

// Ranks' float32 losses and their mean: far above rounding, far below one shard's scatter.
constexpr double kSameLoss = 1e-5;

std::optional<double> loss_in(const RankView& rank, int64_t step) {
  for (const auto& [known, loss] : rank.losses)
    if (known == step) return loss;
  return {};
}

}  // namespace

std::optional<LossRow> loss_row(const RunPlan& plan, const std::vector<RankView>& ranks,
                                int64_t step, Split* split) {
  LossRow row;
  row.step = step;
  row.epoch = (step - 1) / split->steps_per_epoch() + 1;
  const bool sum = plan.scenario.loss.options.text("reduction") == "sum";
  const auto batch = static_cast<double>(split->batch_samples(step));
  for (const RankView& rank : ranks) {
    const auto own = loss_in(rank, step);
    if (!own) return {};
    const auto samples = static_cast<double>(split->shard(step, rank.rank).size());
    row.all_ranks += *own * (sum ? 1 : samples / batch);
    if (rank.rank == 0) row.rank_0 = *own;
  }
  return row;
}

void decide_losses(const RunPlan& plan, const std::vector<RankView>& ranks, RunResult* result) {
  const Part& loss = plan.scenario.loss;
  const int64_t every = report_every(loss);
  if (every == 0 || ranks.empty()) return;
  if (plan.scenario.data.options.has("path") && loss.options.has("published"))
    result->published_losses = loss.options.text("published");
  const bool of_rank_0 = loss.options.text("report_of") == "rank_0";
  Split split(plan.scenario);
  std::string problem;
  for (const auto& [step, unused] : ranks[0].losses) {
    if ((step - 1) % split.steps_per_epoch() % every != 0) continue;
    const auto row = loss_row(plan, ranks, step, &split);
    if (!row) continue;
    result->losses.push_back(*row);
    const bool same =
        std::abs(row->rank_0 - row->all_ranks) <= kSameLoss * std::abs(row->all_ranks);
    if (of_rank_0 && !same && problem.empty())
      problem = fmt::format(
          "losses: step {}: {:.6g} is the loss of rank 0's own {} samples, the batch's {} have "
          "{:.6g}",
          step, row->rank_0, split.shard(step, 0).size(), split.batch_samples(step),
          row->all_ranks);
  }
  const char* verdict = result->losses.empty() ? "not_run" : problem.empty() ? "pass" : "fail";
  result->checks.emplace_back("losses", verdict);
  if (!problem.empty()) result->check_reasons.push_back(problem);
}

}  // namespace lockstep
