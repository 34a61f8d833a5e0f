#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/verdict.h"
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
  Verdict verdict = Verdict::inconclusive;
  std::vector<std::string> lines;  // why not pass, one a combination
};

// fail: of some combination the whole interval breaks the bound. inconclusive: of none, but the
// bound lies within some interval, or a combination has no such number.
Judgement judge(const Threshold& threshold, const std::vector<CellResult>& cells);

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

// A sweep that others measured and published, to be shown beside our own lines. Nothing is decided
// by it: theirs was another machine. As JSON:
//   {"source": "...", "licence": "...", "what": "...", "metric": "backward_ms",
//    "series": [{"of": "...", "reducers": ["c10d"], "world_size": 2, "rows": [[CAP, VALUE], ...]}]}
struct Reference {
  struct Series {
    std::string of;
    std::vector<std::string> reducers;  // of ours that are compared with it
    int64_t world_size = 2;
    std::vector<std::pair<double, double>> rows;  // cap in MiB, value
  };
  std::string source, what, metric;  // metric: one of metric_names()
  std::vector<Series> series;
};
Expected<Reference> load_reference(const std::string& path);

// The published value for a line: by world size, reducer and cap, or a cap with the same buckets.
std::optional<double> published_for(const Reference& reference, const CellResult& cell);

// Over the lines of one group (group_of()) that have a published value; at least two of them.
struct CurveAgreement {
  std::string group;
  int64_t lines = 0;
  double mean_error = 0, largest_error = 0;  // |ours / published - 1|
  double correlation = 0;                    // of ours and the published ones
  double tail_ours = 0, tail_published = 0;  // correlations with the bytes of our tail bucket
};
std::vector<CurveAgreement> agreements(const Reference& reference,
                                       const std::vector<CellResult>& cells);

}  // namespace lockstep
