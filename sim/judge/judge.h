#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/lane.h"
#include "scenarios/base/state_kind.h"
#include "scenarios/base/verdict.h"
#include "sim/analysis/metrics.h"
#include "sim/analysis/straggler.h"
#include "sim/launch/executor.h"

namespace lockstep {

struct LaneResult {
  Lane lane = Lane::replica;
  LaneVerdict verdict = LaneVerdict::inconclusive;
  ControlVerdict control = ControlVerdict::not_run;
  std::string reason;               // one line where the verdict is not pass
  int64_t compared = 0;             // tensors
  std::optional<double> distance;   // float64
  std::optional<double> statistic;  // worst R
};

struct Divergence {
  Lane lane = Lane::replica;
  int64_t step = 0;  // 0: before the first step
  std::optional<StateKind> state_kind;
  std::string tensor;
  std::optional<int64_t> bucket;
  std::vector<int64_t> element;
  std::optional<double> run_value, golden_value;  // NaN and infinities allowed: text in JSON
  std::string run_bits, golden_bits;              // "0x3c4a9d1f"
  uint64_t ulp = 0, max_ulp = 0;
  int64_t differing = 0, numel = 0;
  std::vector<int64_t> ranks;  // on which it was seen
  std::string cause;           // closed list: docs/verdicts.md
  std::string explanation;     // one line: why this cause
};

// Who kept whom waiting, as the records of all ranks tell it, those of dead ones included: as
// things stood when the launcher learnt of the failure.
struct Explanation {
  struct Collective {
    std::string operation;
    int64_t sequence = 0;
    std::optional<int64_t> bucket;
    int64_t bytes = 0;
    std::optional<int64_t> root = {};  // of a program's, whose source or destination it named
  };
  // What a rank was doing that kept the others waiting.
  struct Doing {
    int64_t rank = 0;
    std::string phase, last_event;  // empty: before its first record
    int64_t step = 0;
    std::string layer;              // whose gradient was the last to be ready in this backward
    std::optional<int64_t> for_ms;  // since its last event, until it died or the run had failed
    std::string state;              // "stopped (state T)", "killed by SIGKILL (9)", "running"
  };
  // The one that the primary rank was last seen to enter and that ended on nobody; else the first
  // that not all ranks entered; where all have entered the same ones, the first that did not end on
  // those who timed out; or none.
  std::optional<Collective> collective;
  bool inside = false;                    // it is the one that the primary rank did not come out of
  std::vector<int64_t> missing, entered;  // ranks that never entered it; that did
  std::vector<Doing> doing;               // of the missing, and of the primary rank
  std::vector<int64_t> waited;            // ranks that timed out
  std::optional<int64_t> waited_ms;       // the longest of them
};

struct Failure {
  std::optional<int64_t> rank;  // the primary one
  // crash | exit | exception | hang | timeout | rejected; starved: who kept the others waiting was
  // ready and had no core for most of that time: the machine was busy, and nobody is blamed
  std::string kind;
  std::optional<int> signal, exit_code;
  std::string phase;
  int64_t step = 0;
  std::string last_event;  // "arrival of all_reduce 12 (bucket 1)"
  std::string message;     // one sentence
  std::vector<std::string> log_tail;
  std::vector<int64_t> secondary;
  // checkpoint, collective_mismatch: where the failure itself or the calls until then show it.
  std::string cause;
  std::vector<std::string> stack;     // of a hung rank: at most 20 frames, innermost first
  std::optional<double> detected_ms;  // from its last sign of life to when the launcher knew
  // From the first receipt of a fault, without one from the begin of the run, to the same moment.
  std::optional<double> after_ms;
  double core_wait_ms =
      0;  // within after_ms: all processes that were ready and had no core, added up
  Explanation explanation;
};

// What loss.report_every asks for.
struct LossRow {
  int64_t epoch = 1, step = 1;  // step of the run
  double all_ranks = 0;         // mean over the whole batch
  double rank_0 = 0;            // mean over rank 0's samples
};

// Was the defect that a scenario has, as its expectation describes it, found? Nothing is said of
// what the expectation leaves open.
struct Kill {
  bool hidden = false;  // the expectation is that nothing shows
  bool caught = false;  // by the lanes, checks, failure or timeline expected, and by no other lane
  std::optional<bool> cause_right, place_right;
  bool complete() const { return caught && cause_right != false && place_right != false; }
};

// Why nothing can be said of whether an expectation is met.
enum class Undecided {
  decided,
  interrupted,
  inconclusive,  // the run's verdict is, and the expectation did not ask for that
  busy_machine,  // ranks or the launcher had no core for so long that this may be why it is not
};
const char* to_word(Undecided undecided);

// The step time of the same plan in virtual time: lockstep analyze.
struct PredictedStep {
  std::optional<double> step_ms;
  std::string machine;  // the file that says it; empty: fitted to this very run
  std::string why_not;  // where there is no step time
};

struct RunResult {
  std::string name, file, label;  // label: "world_size=3 reducer=bucketed" of the axes
  std::vector<std::pair<std::string, std::string>> set;
  int64_t world_size = 1, steps = 1;
  int64_t start_step = 0;  // steps that were done in the file from which it went on
  uint64_t seed = 0;
  std::string reducer, communicator, algorithm, device;
  Verdict verdict = Verdict::inconclusive;  // observed
  std::string expected;  // the expectation in words of the report: "pass", "fail, cause x"
  std::optional<bool> met;
  Undecided undecided = Undecided::decided;  // why `met` is neither
  std::vector<std::string> unmet;            // "cause: expected wrong_divisor, got order_only"
  RunEnding outcome = RunEnding::failed;
  int64_t duration_ms = 0;
  std::vector<LaneResult> lanes;
  std::optional<Divergence> first_divergence;
  std::optional<Failure> failure;
  std::vector<std::pair<std::string, CheckVerdict>> checks;  // by name
  std::vector<std::string> check_reasons;
  // common_checks: by their names (sim/judge/checks.h); else empty.
  std::vector<std::pair<std::string, CommonVerdict>> common_checks;
  std::optional<Kill> kill;  // likewise
  std::vector<LossRow> losses;
  std::string published_losses;  // path of those that others printed, or empty
  std::string golden;            // JSON text of runs[].golden, or empty: null
  std::string final_hash;        // 32 hex digits, or empty
  // Of the hashes of all state that ranks promise each other, on every rank after every step, and
  // of the final ones: 32 hex digits. Equal where two runs went the same way, bit for bit.
  std::string state_hash;
  bool acted = false;  // a fault or mutant left a receipt: for campaigns, never for verdicts
  std::optional<Metrics> metrics;      // where they are asked for
  std::optional<Timeline> intervals;   // that they were taken from, where asked for
  std::optional<Straggler> straggler;  // of a run that completed, where metrics are
  std::optional<PredictedStep> predicted;
  std::vector<int64_t> optimizer_bytes;  // of the state that each rank holds; empty: not known
  std::string reducer_data;              // JSON text of runs[].reducer_data, or empty: null
  std::string run_dir;
  std::string again;  // the command that runs exactly this again, or judges it again
  // Of a kept run: how it says that it was run. Its maker's words, maybe a stranger's; never a
  // command of ours.
  std::string told_command;
  std::string baseline;    // EarlierResult::beside() of sim/report; empty: none was given
  std::string control_of;  // plan.control: not reported by itself
};

// What a result holds beside the verdict. Metrics are there as well where the scenario is about
// time: it has faults or emulated compute, or says who must be late.
struct Measure {
  bool metrics = false;
  bool intervals = false;  // keep the timeline too
};

// Decides from records and ends alone; runs nothing, reads no file, measures nothing. The same
// outcome always gives the same result. See docs/verdicts.md.
RunResult judge_run(const RunOutcome& outcome, const Measure& measure = {});

// A second-run control (plan.control) that did not fail makes its lane void in all results of the
// same file. Changes `results`, recomputing verdict and met.
void apply_control(const RunResult& control, std::vector<RunResult>* results);

// Of a whole invocation, by `met`. Runs that an earlier result excuses (baseline "known") do not
// count.
Verdict overall_verdict(const std::vector<RunResult>& results);

nlohmann::ordered_json as_json(const RunResult& result);

}  // namespace lockstep
