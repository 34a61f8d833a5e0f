#include "sim/campaign/mutant_tally.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void count(const MutantRun& run, MutantTally* tally) {
  ++tally->runs;
  tally->caught += run.end == MutantEnd::caught;
  tally->elsewhere += run.end == MutantEnd::elsewhere;
  tally->equivalent += run.end == MutantEnd::equivalent;
  tally->missed += run.end == MutantEnd::missed;
  tally->idle += run.end == MutantEnd::equivalent && !run.acted;
}

// A run that ended in a failure of its ranks was noticed too.
bool was_noticed(const RunResult& run) { return run.verdict == "fail" || run.outcome == "failed"; }

// Passed; or nothing but its lane float64 is not sure, which a defect that cancels in the run
// itself may do to its double.
bool is_decided(const RunResult& run) {
  const auto decided = [](const LaneResult& lane) {
    return lane.verdict != "inconclusive" || lane.distance.has_value();
  };
  return run.verdict == "pass" ||
         (!run.lanes.empty() && std::all_of(run.lanes.begin(), run.lanes.end(), decided));
}

bool is_in_place(const RunResult& run, const Json& document) {
  if (run.verdict == "fail") return run.met == true;
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
    const bool same = twin->verdict == "pass" && is_decided(run) &&
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
