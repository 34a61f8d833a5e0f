#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/judge/judge.h"

namespace lockstep {

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
