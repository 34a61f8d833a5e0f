#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/sweep/result.h"

namespace lockstep {

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
struct Agreement {
  std::string group;
  int64_t lines = 0;
  double mean_error = 0, largest_error = 0;  // |ours / published - 1|
  double correlation = 0;                    // of ours and the published ones
  double tail_ours = 0, tail_published = 0;  // correlations with the bytes of our tail bucket
};
std::vector<Agreement> agreements(const Reference& reference, const std::vector<CellResult>& cells);

}  // namespace lockstep
