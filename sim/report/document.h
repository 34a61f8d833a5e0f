#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/judge/judge.h"
#include "sim/report/machine.h"

namespace lockstep {

// Exit codes of a whole invocation (docs/verdicts.md); 128 + n where signal n interrupted it.
inline constexpr int kExitPass = 0;
inline constexpr int kExitFail = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInconclusive = 3;
inline constexpr int kExitNothing = 4;

// A run that was selected and did not come to its end.
struct NotRun {
  std::string name, file, label;
  std::string why = {};  // this machine cannot run it; empty: the invocation ended before
};

// All that one invocation has to say: the source of the terminal's text and of --json.
struct ResultDocument {
  uint64_t seed = 0;
  Machine machine;
  Libraries libraries;
  std::optional<Verdict> verdict;  // nothing where nothing was run
  int exit_code = 0;
  int64_t duration_ms = 0;
  std::vector<RunResult> runs;  // controls are not among them
  std::vector<NotRun> not_run;
  InputErrors errors;
  std::vector<std::string> timelines = {};  // JSON of sim/report/html, for --html alone
};

// What the runs have in common, for the last line and for `summary`.
struct Summary {
  int64_t runs = 0, pass = 0, fail = 0, inconclusive = 0;  // as observed
  int64_t met = 0, unmet = 0, undecided = 0;               // against the expectation
  int64_t known = 0;             // not met, but no worse than in the baseline: in none of the three
  int64_t tensors_compared = 0;  // lanes that compare bytes, passed runs
  std::optional<double> worst_distance;   // lane float64, passed runs
  std::optional<double> worst_statistic;  // lane rounding, passed runs
};
Summary summary_of(const std::vector<RunResult>& runs);

nlohmann::ordered_json as_json(const Machine& machine);
nlohmann::ordered_json as_json(const Libraries& libraries);
nlohmann::ordered_json as_json(const ResultDocument& document);
// as_json() as text: indented, valid UTF-8 whatever the strings hold, final newline.
std::string to_text(const ResultDocument& document);
std::string to_text(const nlohmann::ordered_json& document);

// Can a file be made or replaced at `path`? Asked before any run starts; nothing is left behind.
// The reason if not ("/proc/nope: No such file or directory").
std::optional<std::string> why_not_writable(const std::string& path);

// Replaces `path` in one step (temporary file beside it, then rename), except where it is no
// regular file (/dev/stdout): that is written to. Throws std::system_error.
void write_atomically(const std::string& path, const std::string& text);

// What --json of an earlier invocation says of its runs: the baseline of verify and run. A run is
// the same if its scenario's name, its axes and the name of its file are.
class EarlierResult {
 public:
  // Bad input: no such file, or not what --json of verify, run or campaign wrote.
  static Expected<EarlierResult> load(const std::string& path);

  // RunResult::baseline of a run: regression | known | fixed | same | changed | absent.
  std::string beside(const RunResult& run) const;

 private:
  std::map<std::string, std::optional<bool>> met_;
};

}  // namespace lockstep
