#include "sim/campaign/tally.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "scenarios/base/error.h"

namespace lockstep {

std::vector<KindTally> tally(const std::vector<RunResult>& runs,
                             const std::vector<std::pair<std::string, std::string>>& kinds) {
  const std::map<std::string, std::string> kind_of(kinds.begin(), kinds.end());
  std::map<std::string, KindTally> by_kind;
  for (const RunResult& run : runs) {
    const auto known = kind_of.find(run.name);
    LOCKSTEP_CHECK(known != kind_of.end(), "a run that the campaign did not draw: " + run.name);
    KindTally& one = by_kind[known->second];
    one.kind = known->second;
    ++one.runs;
    one.met += run.met == true;
    if (!run.failure) continue;
    ++one.failed_runs;
    if (run.failure->after_ms) one.after_ms.push_back(*run.failure->after_ms);
  }
  std::vector<KindTally> tallies;
  for (auto& [kind, one] : by_kind) {
    std::sort(one.after_ms.begin(), one.after_ms.end());
    tallies.push_back(std::move(one));
  }
  return tallies;
}

double percentile(const std::vector<double>& ascending, double percent) {
  LOCKSTEP_CHECK(!ascending.empty(), "no values");
  const double rank = std::ceil(percent / 100 * static_cast<double>(ascending.size()));
  const auto index = static_cast<size_t>(std::max(1.0, rank)) - 1;
  return ascending[std::min(index, ascending.size() - 1)];
}

nlohmann::ordered_json as_json(const std::vector<KindTally>& tallies) {
  auto list = nlohmann::ordered_json::array();
  for (const KindTally& one : tallies) {
    nlohmann::ordered_json json = {
        {"kind", one.kind}, {"runs", one.runs}, {"met", one.met}, {"failed", one.failed_runs}};
    for (const auto& [key, percent] :
         {std::pair("after_ms_median", 50.0), std::pair("after_ms_p95", 95.0),
          std::pair("after_ms_p99", 99.0)})
      json[key] = one.after_ms.empty() ? nlohmann::ordered_json()
                                       : nlohmann::ordered_json(percentile(one.after_ms, percent));
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace lockstep
