#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"

namespace lockstep {

// A run's timeline as the page draws it: compact JSON, times in ticks of 100 ns since the run's
// first event. Keys are named where they are written.

// What a reader wants to see first: who made the run fail, or was late, and in which step.
struct HtmlFocus {
  std::vector<int64_t> ranks;
  int64_t step = 0;  // 0: none
  std::string what;  // "hang", "late: compute"
};
HtmlFocus focus_of(const std::optional<Failure>& failure,
                   const std::optional<Divergence>& divergence,
                   const std::optional<Straggler>& straggler);

// Ranks that enter collectives, added up over all of them: more would make a page that no browser
// opens at once. Steps far from the focus are left out beyond it, and the page says so.
inline constexpr int64_t kMostPassages = 400'000;

struct HtmlRun {
  std::string name;  // "toy_model: world_size=3"
  HtmlFocus focus;
  std::vector<std::string> faults = {};  // their words, where the scenario does not have them
};
std::string html_timeline(const RunOutcome& outcome, const HtmlRun& run,
                          int64_t most = kMostPassages);

// Of an invocation with many runs: those that are not as expected first, until a page is full.
class HtmlTimelines {
 public:
  // `index`: among all that were selected.
  void add(size_t index, const RunOutcome& outcome, const RunResult& result);
  // `ended[i]`: did the run of index i come to an end? Those are runs[] of the result, and each
  // timeline says which of them it is.
  std::vector<std::string> take(const std::vector<bool>& ended) const;

 private:
  struct Kept {
    size_t index;
    std::string text;
  };
  std::vector<Kept> kept_;
  size_t bytes_ = 0;
};

}  // namespace lockstep
