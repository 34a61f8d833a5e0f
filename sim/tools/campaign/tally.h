#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/judge/judge.h"

namespace lockstep {

// What a campaign has to say about one kind of fault.
struct KindTally {
  std::string kind;
  int64_t runs = 0, met = 0;
  int64_t failed_runs = 0;       // in which ranks failed
  std::vector<double> after_ms;  // ascending, as Failure has them
};

// Kinds in alphabetical order. `kinds`: the fault of each run, by its name.
std::vector<KindTally> tally(const std::vector<RunResult>& runs,
                             const std::vector<std::pair<std::string, std::string>>& kinds);

// The nearest-rank percentile of ascending values; values must not be empty. 50: the median.
double percentile(const std::vector<double>& ascending, double percent);

nlohmann::ordered_json as_json(const std::vector<KindTally>& tallies);

// What is left of a correct run. Accused: it failed, which is a false alarm.
struct CleanRun {
  std::string name;
  Verdict verdict = Verdict::inconclusive;
  bool failed = false;  // ranks failed
  std::string why;      // one line, where it did not pass
  std::string again;
  std::vector<std::pair<Lane, LaneVerdict>> lanes;
  std::optional<double> statistic;  // R, the worst of its steps
};
CleanRun clean_run_of(const RunResult& run);

struct LaneTally {
  Lane lane = Lane::replica;
  int64_t pass = 0, fail = 0, undecided = 0, not_applicable = 0;
};

struct CleanTally {
  int64_t runs = 0, passed = 0, accused = 0, undecided = 0;
  int64_t failed = 0;              // of the undecided: ranks failed
  std::vector<LaneTally> lanes;    // those that ran, in the order of docs/verdicts.md
  std::vector<double> statistics;  // R of the runs with lane rounding, ascending
};
CleanTally tally(const std::vector<CleanRun>& runs);

nlohmann::ordered_json as_json(const CleanTally& tally);

// What came of one random defect.
enum class MutantEnd {
  caught,      // the run failed, first where it had to
  elsewhere,   // the run failed, but first somewhere else
  equivalent,  // it did not, and all its state is that of the run without the defect
  missed,
};
const char* to_word(MutantEnd end);

struct MutantRun {
  std::string name, kind;
  MutantEnd end = MutantEnd::missed;
  bool acted = false;                 // left a receipt
  std::vector<std::string> unmet;     // of `elsewhere` and `missed`: what was expected
  std::string again;                  // the command that runs it again
  std::string state_hash, twin_hash;  // of `equivalent` and `missed`
};

// Does only the run without the defect tell what the run with it was? So it is where it did not
// fail.
bool needs_twin(const RunResult& run);

// Of the case `document` that was run. A run whose ranks failed is caught where they failed in the
// expected step. `twin`: of the same training without the defect, where
// needs_twin(); null: it is not known.
MutantRun end_of(const RunResult& run, const nlohmann::ordered_json& document,
                 const RunResult* twin);

struct MutantTally {
  std::string kind;
  int64_t runs = 0, caught = 0, elsewhere = 0, equivalent = 0, missed = 0;
  int64_t idle = 0;  // of the equivalent ones: the defect found nothing to act on
};
// One a kind, in alphabetical order.
std::vector<MutantTally> tally(const std::vector<MutantRun>& runs);
MutantTally sum_of(const std::vector<MutantTally>& tallies);

nlohmann::ordered_json as_json(const std::vector<MutantTally>& tallies);
// Those that were not caught where they had to be, equivalent ones with the hashes that prove it.
nlohmann::ordered_json not_caught_json(const std::vector<MutantRun>& runs);

}  // namespace lockstep
