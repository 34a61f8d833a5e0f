#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/sweep/result.h"

namespace lockstep {

// A bound that every combination must keep: "step_ms<=120".
struct Threshold {
  std::string metric;      // one of metric_names()
  std::string comparison;  // < | <= | > | >=
  double bound = 0;
  std::string text() const;  // "step_ms<=120"
};

// Bad input: another form, a metric that there is not (with a suggestion).
Expected<Threshold> parse_threshold(const std::string& text);

// What came of a comparison with a bound or an earlier sweep.
struct Judgement {
  std::string verdict;             // pass | fail | inconclusive
  std::vector<std::string> lines;  // why not pass, one a combination
};

// fail: of some combination the whole interval breaks the bound. inconclusive: of none, but the
// bound lies within some interval, or a combination has no such number.
Judgement judge(const Threshold& threshold, const std::vector<CellResult>& cells);

// The worse of both: fail, then inconclusive.
std::string worse_verdict(const std::string& a, const std::string& b);

}  // namespace lockstep
