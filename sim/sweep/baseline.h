#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/sweep/threshold.h"

namespace lockstep {

// An earlier sweep: what lines of its --json are compared with.
struct Baseline {
  struct Line {
    std::string label;             // label_of()
    std::vector<double> steps_ms;  // of each round
  };
  std::string scenario, cpu;
  int64_t cores = 0;
  std::vector<Line> lines;
};

// Bad input: no such file, not what --json of a sweep wrote.
Expected<Baseline> load_baseline(const std::string& path);

// A combination has regressed when it takes longer by more than this.
inline constexpr double kTolerance = 0.02;
// Fewer rounds on either side decide nothing: all of one above all of the other by chance alone
// comes about once in 1 / (2 x 5 choose 5) = 252 times.
inline constexpr int64_t kLeastBaselineRounds = 5;

// fail: the whole interval of some combination's step time now against then, simultaneously at
// 95 %, lies above 1 + kTolerance. inconclusive: there are too few rounds on either side, no
// combination is in both, or it was measured on another machine (processor, cores) or of another
// scenario. Every line that is not "alike" is named.
Judgement judge(const Baseline& before, const std::string& scenario, const std::string& cpu,
                int64_t cores, const std::vector<CellResult>& cells, uint64_t seed);

}  // namespace lockstep
