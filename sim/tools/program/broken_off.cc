#include "sim/tools/program/broken_off.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/run_blame.h"

namespace lockstep {
namespace {

bool has_finished(const ProgramRun& run, int64_t rank) {
  const std::vector<RankView> views = views_of(run.outcome);
  return std::any_of(views.begin(), views.end(),
                     [&](const RankView& view) { return view.rank == rank && view.finished; });
}

// A crash that is the script's, or the machine's.
bool others_died_alike(const ProgramRun& run, const Failure& failure) {
  return std::any_of(run.outcome.ends.begin(), run.outcome.ends.end(), [&](const ProcessEnd& end) {
    return end.rank != *failure.rank && !end.by_launcher && end.signal != 0 &&
           end.signal == failure.signal;
  });
}

bool is_same_error(const ProgramRankFacts& a, const ProgramRankFacts& b) {
  return type_of_error(a.error) == type_of_error(b.error) && a.line == b.line;
}

}  // namespace

bool is_certain(const ProgramRun& run, const ProgramRunResult& result) {
  if (!result.failure || !result.why.empty()) return false;
  const Failure& failure = *result.failure;
  if (run.deadlock || failure.kind == "rejected") return true;
  if (!failure.rank) return false;
  if (failure.kind == "crash")
    return !has_finished(run, *failure.rank) && !others_died_alike(run, failure);
  return failure.kind == "exception" || failure.kind == "exit";
}

bool ends_by_itself(const ProgramRunResult& result) {
  const Failure& failure = *result.failure;
  if (result.disagree) return true;
  return failure.rank && (failure.kind == "exception" || failure.kind == "crash" ||
                          (failure.kind == "exit" && failure.exit_code.value_or(0) != 0));
}

bool ends_alike(const ProgramRunResult& ranks, const ProgramRunResult& one) {
  if (!one.failure || !ranks.failure || (!ranks.failure->rank && !ranks.disagree)) return false;
  const ProgramRankFacts& first = ranks.ranks[static_cast<size_t>(ranks.failure->rank.value_or(0))];
  const ProgramRankFacts& alone = one.ranks[0];
  if (first.error.empty() && alone.error.empty())
    return ranks.failure->exit_code == one.failure->exit_code &&
           ranks.failure->signal == one.failure->signal;
  return is_same_error(first, alone);
}

bool share_an_error(const ProgramRunResult& one, const ProgramRunResult& other) {
  bool any = false;
  for (const ProgramRankFacts& a : one.ranks)
    for (const ProgramRankFacts& b : other.ranks) {
      if (a.error.empty() || b.error.empty()) continue;
      any = true;
      if (is_same_error(a, b)) return true;
    }
  return !any;
}

std::string in_own_gather(const std::string& folder, int64_t world) {
  std::vector<int64_t> there, missing;
  std::error_code error;
  for (int64_t rank = 0; rank < world; ++rank)
    (std::filesystem::exists(fmt::format("{}/rank-{}.gathers", folder, rank), error) ? there
                                                                                     : missing)
        .push_back(rank);
  if (there.empty() || missing.empty()) return "";
  return fmt::format(
      "; {} updated, where shards are gathered to be compared, and {} did not: ranks that share "
      "parameters must make the same optimizer steps",
      ranks_text(there), ranks_text(missing));
}

}  // namespace lockstep
