#include "sim/tools/program/deadlock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "scenarios/base/file.h"
#include "sim/judge/blame.h"
#include "sim/judge/other_calls.h"
#include "sim/launch/run_files.h"
#include "sim/tools/program/group_calls.h"
#include "sim/tools/program/group_waits.h"
#include "sim/tools/program/run_blame.h"

namespace lockstep {

bool nobody_can_go_on(const ProgramRun& run, const std::vector<int64_t>& alive) {
  const std::vector<RankView> views = views_of(run.outcome);
  const auto waits = [&](int64_t rank) {
    const RankView* view = view_of(views, rank);
    return (view != nullptr && pending_in(*view) != nullptr) || waits_in_group(run, rank);
  };
  if (alive.empty() || !std::all_of(alive.begin(), alive.end(), waits)) return false;
  if (longest_group_wait(run)) return true;
  for (const int64_t rank : alive) {
    const RankView* view = view_of(views, rank);
    const Event* pending = view == nullptr ? nullptr : pending_in(*view);
    if (pending == nullptr) continue;
    for (const RankView& other : views)
      if (last_arrival(&other) < pending->sequence) return true;
  }
  return !first_other_calls(views, is_other_call).empty() ||
         first_group_mismatch(run, is_other_call);
}

bool stands_in_torch(const std::string& folder, int64_t rank) {
  const std::vector<std::string> files = files_of_stack(folder, rank);
  return !files.empty() && files[0].find("/torch/") != std::string::npos &&
         files[0].find("/torch/utils/data/") == std::string::npos;
}

}  // namespace lockstep
