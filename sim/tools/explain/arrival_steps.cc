#include "sim/tools/explain/arrival_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kMostCalls = 512;  // of a step

// The longest stretch in which each call is that of `calls` collectives before.
Steps repeated(const std::vector<size_t>& all, size_t calls) {
  Steps best;
  size_t run = 0, longest = 0;
  for (size_t i = calls; i < all.size(); ++i) {
    run = all[i] == all[i - calls] ? run + 1 : 0;
    if (run <= longest) continue;
    longest = run;
    best = {i + 1 - run - calls, calls, (run + calls) / calls};
  }
  return best;
}

// Of the times between collectives, what is left when each has the median of its place in the step.
double unevenness(const GroupArrivals& group, const Steps& steps) {
  std::vector<std::vector<double>> by_place(steps.calls);
  for (size_t i = steps.begin + 1; i < steps.begin + steps.steps * steps.calls; ++i)
    by_place[(i - steps.begin) % steps.calls].push_back(group.came_ms[i][0] -
                                                        group.came_ms[i - 1][0]);
  double sum = 0;
  for (const std::vector<double>& gaps : by_place) {
    if (gaps.empty()) continue;
    const double usual = middle(gaps);
    for (const double gap : gaps) sum += std::abs(gap - usual);
  }
  return sum;
}

// Buckets of one size repeat from call to call: that a step has several of them, times alone tell.
Steps widened(const GroupArrivals& group, const Steps& calls) {
  constexpr double kAsGood = 1.15, kMuchBetter = 0.6;
  const size_t collectives = calls.steps * calls.calls;
  std::vector<std::pair<Steps, double>> tried;
  double least = 0;
  for (size_t wide = calls.calls; wide <= kMostCalls && collectives / wide >= kLeastSteps;
       wide += calls.calls) {
    const Steps steps{calls.begin, wide, collectives / wide};
    tried.emplace_back(steps, unevenness(group, steps));
    if (tried.size() == 1 || tried.back().second < least) least = tried.back().second;
  }
  if (tried.empty() || least > kMuchBetter * tried.front().second) return calls;
  for (const auto& [steps, rest] : tried)
    if (rest <= kAsGood * least) return steps;
  return calls;
}

}  // namespace

double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Steps steps_of(const GroupArrivals& group) {
  Steps best;
  for (size_t calls = 1; calls <= std::min(kMostCalls, group.calls.size() / kLeastSteps); ++calls) {
    const Steps found = repeated(group.kinds, calls);
    const size_t most = best.steps * best.calls + best.steps * best.calls / 8;
    if (found.steps >= kLeastSteps && found.steps * found.calls > most) best = found;
  }
  return best.steps == 0 ? best : widened(group, best);
}

}  // namespace lockstep
