#include "sim/tools/campaign/tally.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "scenarios/base/error.h"
#include "sim/analysis/rate_bound.h"

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

namespace {

using Json = nlohmann::ordered_json;

std::string reason_of(const RunResult& run) {
  if (run.failure) return run.failure->message;
  for (const LaneResult& lane : run.lanes)
    if (lane.verdict == LaneVerdict::fail || lane.verdict == LaneVerdict::inconclusive ||
        lane.verdict == LaneVerdict::voided)
      return fmt::format("lane {}: {}: {}", to_word(lane.lane), to_word(lane.verdict), lane.reason);
  for (const std::string& reason : run.check_reasons) return reason;
  return "";
}

}  // namespace

CleanRun clean_run_of(const RunResult& run) {
  CleanRun clean;
  clean.name = run.name;
  clean.verdict = run.verdict;
  clean.failed = run.outcome == RunEnding::failed;
  clean.why = run.verdict == Verdict::pass ? "" : reason_of(run);
  clean.again = run.again;
  for (const LaneResult& lane : run.lanes) {
    clean.lanes.emplace_back(lane.lane, lane.verdict);
    if (lane.statistic) clean.statistic = lane.statistic;
  }
  return clean;
}

CleanTally tally(const std::vector<CleanRun>& runs) {
  CleanTally tally;
  for (const LaneRow& row : lanes()) tally.lanes.emplace_back().lane = row.lane;
  for (const CleanRun& run : runs) {
    ++tally.runs;
    tally.passed += run.verdict == Verdict::pass;
    tally.accused += run.verdict == Verdict::fail;
    tally.undecided += run.verdict == Verdict::inconclusive;
    tally.failed += run.verdict == Verdict::inconclusive && run.failed;
    if (run.statistic) tally.statistics.push_back(*run.statistic);
    for (const auto& [lane, verdict] : run.lanes) {
      const auto of_lane =
          std::find_if(tally.lanes.begin(), tally.lanes.end(),
                       [which = lane](const LaneTally& known) { return known.lane == which; });
      of_lane->pass += verdict == LaneVerdict::pass;
      of_lane->fail += verdict == LaneVerdict::fail;
      of_lane->not_applicable += verdict == LaneVerdict::not_applicable;
      of_lane->undecided += verdict == LaneVerdict::inconclusive || verdict == LaneVerdict::voided;
    }
  }
  std::sort(tally.statistics.begin(), tally.statistics.end());
  return tally;
}

Json as_json(const CleanTally& tally) {
  Json json = {{"runs", tally.runs},
               {"passed", tally.passed},
               {"accused", tally.accused},
               {"undecided", tally.undecided},
               {"failed", tally.failed},
               {"accused_rate_bound_95", rate_bound_95(tally.accused, tally.runs)}};
  for (const LaneTally& lane : tally.lanes)
    json["lanes"][to_word(lane.lane)] = {{"pass", lane.pass},
                                         {"fail", lane.fail},
                                         {"undecided", lane.undecided},
                                         {"not_applicable", lane.not_applicable}};
  json["rounding_statistic"] = {{"runs", tally.statistics.size()}};
  if (tally.statistics.empty()) return json;
  for (const auto& [key, percent] : {std::pair("median", 50.0), std::pair("p90", 90.0),
                                     std::pair("p99", 99.0), std::pair("largest", 100.0)})
    json["rounding_statistic"][key] = percentile(tally.statistics, percent);
  return json;
}

namespace {

void count(const MutantRun& run, MutantTally* tally) {
  ++tally->runs;
  tally->caught += run.end == MutantEnd::caught;
  tally->elsewhere += run.end == MutantEnd::elsewhere;
  tally->equivalent += run.end == MutantEnd::equivalent;
  tally->missed += run.end == MutantEnd::missed;
  tally->idle += run.end == MutantEnd::equivalent && !run.acted;
}

// A run that ended in a failure of its ranks was noticed too.
bool was_noticed(const RunResult& run) {
  return run.verdict == Verdict::fail || run.outcome == RunEnding::failed;
}

// Passed; or nothing but its lane float64 is not sure, which a defect that cancels in the run
// itself may do to its double.
bool is_decided(const RunResult& run) {
  const auto decided = [](const LaneResult& lane) {
    return lane.verdict != LaneVerdict::inconclusive || lane.distance.has_value();
  };
  return run.verdict == Verdict::pass ||
         (!run.lanes.empty() && std::all_of(run.lanes.begin(), run.lanes.end(), decided));
}

bool is_in_place(const RunResult& run, const Json& document) {
  if (run.verdict == Verdict::fail) return run.met == true;
  return run.failure && run.failure->step == document["expect"]["step"].get<int64_t>();
}

}  // namespace

const char* to_word(MutantEnd end) {
  switch (end) {
    case MutantEnd::caught:
      return "caught";
    case MutantEnd::elsewhere:
      return "elsewhere";
    case MutantEnd::equivalent:
      return "equivalent";
    case MutantEnd::missed:
      break;
  }
  return "missed";
}

bool needs_twin(const RunResult& run) { return !was_noticed(run); }

MutantRun end_of(const RunResult& run, const Json& document, const RunResult* twin) {
  MutantRun end;
  end.name = run.name;
  end.kind = document["mutants"][0]["kind"].get<std::string>();
  end.acted = run.acted;
  end.again = run.again;
  if (was_noticed(run)) {
    end.end = is_in_place(run, document) ? MutantEnd::caught : MutantEnd::elsewhere;
  } else if (twin != nullptr) {
    end.state_hash = run.state_hash;
    end.twin_hash = twin->state_hash;
    const bool same = twin->verdict == Verdict::pass && is_decided(run) &&
                      run.state_hash == twin->state_hash && run.final_hash == twin->final_hash;
    end.end = same ? MutantEnd::equivalent : MutantEnd::missed;
  }
  if (end.end == MutantEnd::elsewhere || end.end == MutantEnd::missed) end.unmet = run.unmet;
  return end;
}

std::vector<MutantTally> tally(const std::vector<MutantRun>& runs) {
  std::map<std::string, MutantTally> by_kind;
  for (const MutantRun& run : runs) {
    MutantTally& one = by_kind[run.kind];
    one.kind = run.kind;
    count(run, &one);
  }
  std::vector<MutantTally> tallies;
  for (auto& [kind, one] : by_kind) tallies.push_back(std::move(one));
  return tallies;
}

MutantTally sum_of(const std::vector<MutantTally>& tallies) {
  MutantTally sum;
  sum.kind = "all";
  for (const MutantTally& one : tallies) {
    sum.runs += one.runs;
    sum.caught += one.caught;
    sum.elsewhere += one.elsewhere;
    sum.equivalent += one.equivalent;
    sum.missed += one.missed;
    sum.idle += one.idle;
  }
  return sum;
}

Json as_json(const std::vector<MutantTally>& tallies) {
  Json list = Json::array();
  for (const MutantTally& one : tallies)
    list.push_back({{"kind", one.kind},
                    {"runs", one.runs},
                    {"caught", one.caught},
                    {"elsewhere", one.elsewhere},
                    {"equivalent", one.equivalent},
                    {"idle", one.idle},
                    {"missed", one.missed}});
  return list;
}

Json not_caught_json(const std::vector<MutantRun>& runs) {
  Json list = Json::array();
  for (const MutantRun& run : runs) {
    if (run.end == MutantEnd::caught) continue;
    Json json = {{"name", run.name}, {"kind", run.kind}, {"end", to_word(run.end)}};
    json["acted"] = run.acted;
    if (!run.unmet.empty()) json["unmet"] = run.unmet;
    if (!run.twin_hash.empty()) {
      json["state_hash"] = run.state_hash;
      json["twin_hash"] = run.twin_hash;
    }
    json["again"] = run.again;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace lockstep
