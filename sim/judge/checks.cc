#include "sim/judge/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "golden/state.h"
#include "scenarios/scenario.h"
#include "scenarios/split.h"
#include "sim/analysis/element_type.h"
#include "sim/judge/blame.h"
#include "sim/judge/rank_view.h"
#include "sim/launch/executor.h"

namespace lockstep {
namespace {

std::string dtype_word(uint8_t code) {
  const ElementType* type = element_type_of(code);
  return type == nullptr ? fmt::format("type {}", code) : type->word;
}

std::string describe_arrival(const Event& arrival) {
  return collective_text(arrival) + " of " + dtype_word(unpack_collective(arrival.value).dtype);
}

std::string other_call(const RankView& a, const RankView& b) {
  std::unordered_map<uint32_t, const Event*> of_b;  // a long run has many
  for (const Event& y : b.arrivals) of_b.emplace(y.sequence, &y);
  for (const Event& x : a.arrivals) {
    const auto found = of_b.find(x.sequence);
    if (found == of_b.end() || x.value == found->second->value) continue;
    return fmt::format("rank {} called {}, rank {} called {}", a.rank, describe_arrival(x), b.rank,
                       describe_arrival(*found->second));
  }
  return fmt::format("ranks {} and {} made {} and {} collectives", a.rank, b.rank,
                     a.arrivals.size(), b.arrivals.size());
}

// Steps that a failure cut short have no hash: there, what both ranks called under one number.
std::optional<OtherCollective> in_unfinished_step(const std::vector<RankView>& ranks) {
  if (ranks.empty()) return {};
  std::unordered_map<uint32_t, const Event*> of_first;
  for (const Event& arrival : ranks[0].arrivals) of_first.emplace(arrival.sequence, &arrival);
  for (size_t r = 1; r < ranks.size(); ++r)
    for (const Event& arrival : ranks[r].arrivals) {
      const auto found = of_first.find(arrival.sequence);
      if (found == of_first.end() || found->second->value == arrival.value) continue;
      return OtherCollective{
          arrival.step,
          fmt::format("in step {}, rank 0 called {}, rank {} called {}", arrival.step,
                      describe_arrival(*found->second), ranks[r].rank, describe_arrival(arrival))};
    }
  return {};
}

// `compared`: did any two ranks end a step that both have logged?
std::optional<OtherCollective> other_collective(const std::vector<RankView>& ranks,
                                                bool* compared) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    const StepValues& a = ranks[0].collectives;
    const StepValues& b = ranks[r].collectives;
    size_t j = 0;
    for (const auto& [step, value] : a) {
      while (j < b.size() && b[j].first < step) ++j;
      if (j == b.size() || b[j].first != step) continue;
      *compared = true;
      if (b[j].second == value) continue;
      return OtherCollective{
          step, fmt::format("up to step {}, {}", step, other_call(ranks[0], ranks[r]))};
    }
  }
  return in_unfinished_step(ranks);
}

CheckVerdict collective_log(const std::vector<RankView>& ranks, std::vector<std::string>* reasons) {
  bool compared = false;
  const auto other = other_collective(ranks, &compared);
  if (!other) return compared ? CheckVerdict::pass : CheckVerdict::not_run;
  reasons->push_back("collective_log: " + other->text);
  return CheckVerdict::fail;
}

CheckVerdict recorded(const std::vector<RankView>& ranks, Check which) {
  CheckVerdict verdict = CheckVerdict::not_run;
  for (const RankView& rank : ranks) {
    for (const CheckReason& reason : rank.evidence.check_reasons)  // survives dropped events
      if (reason.check == which) return CheckVerdict::fail;
    for (const auto& [check, passed] : rank.checks) {
      if (check != which) continue;
      if (!passed) return CheckVerdict::fail;
      verdict = CheckVerdict::pass;
    }
  }
  return verdict;
}

}  // namespace

std::optional<OtherCollective> first_other_collective(const std::vector<RankView>& ranks) {
  bool compared = false;
  return other_collective(ranks, &compared);
}

void decide_checks(const std::vector<RankView>& ranks, RunResult* result) {
  result->checks.emplace_back("collective_log", collective_log(ranks, &result->check_reasons));
  for (const Check which :
       {Check::manifest, Check::absent_gradients, Check::aliasing, Check::checkpoint})
    result->checks.emplace_back(to_word(which), recorded(ranks, which));
  std::vector<std::string>& reasons = result->check_reasons;
  for (const RankView& rank : ranks)
    for (const CheckReason& reason : rank.evidence.check_reasons)
      if (std::find(reasons.begin(), reasons.end(), to_text(reason)) == reasons.end())
        reasons.push_back(to_text(reason));
}

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
  const CheckVerdict verdict = result->losses.empty() ? CheckVerdict::not_run
                               : problem.empty()      ? CheckVerdict::pass
                                                      : CheckVerdict::fail;
  result->checks.emplace_back("losses", verdict);
  if (!problem.empty()) result->check_reasons.push_back(problem);
}

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

CommonVerdict common_verdict(const std::optional<bool>& found) {
  if (!found) return CommonVerdict::not_run;
  return *found ? CommonVerdict::found : CommonVerdict::missed;
}

}  // namespace

void decide_common_checks(const RunPlan& plan, const std::vector<RankView>& ranks,
                          RunResult* result) {
  if (!plan.scenario.common_checks || ranks.empty()) return;
  const auto& close = ranks[0].close;
  result->common_checks = {
      {"loss_5_percent", common_verdict(loss_is_off(plan, ranks))},
      {"weights_hash", common_verdict(weights_part(ranks))},
      {"assert_close", common_verdict(close ? std::optional(!*close) : std::nullopt)},
      {"gradient_norm_8_percent", common_verdict(norm_is_off(ranks))}};
}

namespace {

// A loaded machine wakes nobody in time.
constexpr int64_t kGraceMs = 500;

// When the run had failed: what it did of itself later, as a closed connection makes it, is no
// sign.
bool was_running(const RunOutcome& outcome, const RankView& rank) {
  const ProcessEnd* end = end_of(outcome, rank.rank);
  if (end == nullptr || (end->state && is_stopped(*end->state))) return false;
  const bool had_failed = rank.error_ns && *rank.error_ns <= outcome.failed_ns;
  return !had_failed && (end->by_launcher || end->time_ns > outcome.failed_ns);
}

struct Overdue {
  bool sure = false;  // else waits for a core may be why
  std::string why;
};

std::optional<Overdue> overdue(const RunOutcome& outcome, const RankView& rank) {
  const Event* arrival = pending_in(rank);
  if (arrival == nullptr || !was_running(outcome, rank)) return std::nullopt;
  const int64_t given_ms = time_out_ms(outcome.plan.scenario.timeouts, *arrival);
  const int64_t least_ms = 2 * given_ms + kGraceMs;
  const int64_t passed_ms = (outcome.failed_ns - arrival->time_ns) / 1'000'000;
  if (passed_ms < least_ms) return std::nullopt;
  const int64_t no_core_ms = core_wait_of_all_since(outcome, arrival->time_ns) / 1'000'000;
  const int64_t waited_ms = passed_ms - no_core_ms;
  if (waited_ms >= least_ms)
    return Overdue{true, fmt::format("timeline: rank {} was in {} for {} ms, which has a time-out "
                                     "of {} ms",
                                     rank.rank, collective_text(*arrival), waited_ms, given_ms)};
  return Overdue{
      false, fmt::format("timeline: inconclusive: busy machine: rank {} was in {} for "
                         "{} ms, which has a time-out of {} ms, while processes of "
                         "the run had no core for {} ms",
                         rank.rank, collective_text(*arrival), passed_ms, given_ms, no_core_ms)};
}

}  // namespace

void decide_timeline(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                     RunResult* result) {
  CheckVerdict verdict = CheckVerdict::not_run;
  if (outcome.failed_ns > 0 && !outcome.plan.threads && !outcome.interrupted) {
    verdict = CheckVerdict::pass;
    for (const RankView& rank : views_at(outcome, ranks, outcome.failed_ns)) {
      const std::optional<Overdue> late = overdue(outcome, rank);
      if (!late) continue;
      if (late->sure)
        verdict = CheckVerdict::fail;
      else if (verdict == CheckVerdict::pass)
        verdict = CheckVerdict::inconclusive;
      result->check_reasons.push_back(late->why);
    }
  }
  result->checks.emplace_back("timeline", verdict);
}

}  // namespace lockstep
