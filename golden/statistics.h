#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "golden/golden_run.h"

namespace lockstep {

// The lanes that judge a number of each step, on the run's own weights (docs/numerics.md):
// rounding       R, how far the averaged gradients are from those of the whole batch in float64,
//                relative to correct runs' distance
// communication  the largest ratio of |average - mean of the ranks' gradients| to what additions in
//                any order may lose: gamma_k x mean of |gradient| over the ranks, gamma_k =
//                ku/(1-ku), u = 2^-24, k = W - 1 + (0 where W is a power of two, else 2). For sums
//                whose order nobody knows; the ranks' gradients are computed once more, on the
//                golden device. Of a comm hook with a stated bound (states_bound()) the ratio of
//                what it loses to that bound, norms over all parameters: `error`, of one step's
//                difference to its mean; `owed`, of the sum of all differences so far to the
//                largest mean so far.
enum class Statistic { rounding, communication };
inline constexpr double kRoundingThreshold = 8;
inline constexpr double kCommunicationThreshold = 1;
inline constexpr int64_t kRoundingNullDraws = 19;
double threshold_of(Statistic statistic);

struct StatisticStep {
  double r = 0;          // worst over tensors
  double control_r = 0;  // the same for a damaged copy of the run's gradients: the highest mantissa
                         // bit flipped in the largest element of the first gradient; of a comm
                         // hook's bound: without the last rank's gradients, the worst so far
  int64_t entry = -1;    // tensor of the worst
  bool has_control =
      false;  // the run's control is this step's: the first one's, but of a bound that
              // is met by sums over steps the first beyond it, or the last step's
};

// Item s-1 (s from 1) of these lanes' stream: the state before step s (its weights are used), then
// the state after step s (its gradients are used): 2 x layout.bytes.
GoldenItem statistic_item(const Scenario& scenario);

class StatisticLane {
 public:
  virtual ~StatisticLane() = default;
  // before, after: states of rank 0, in the layout of statistic_item(). The same for the same
  // arguments and scenario seed. Takes world_size forward and backward passes, for rounding
  // kRoundingNullDraws times as many.
  virtual StatisticStep judge(int64_t step, const std::byte* before, const std::byte* after) = 0;
};
std::unique_ptr<StatisticLane> make_rounding_lane(const Scenario& scenario, const ReplayRule& rule);
std::unique_ptr<StatisticLane> make_communication_lane(const Scenario& scenario,
                                                       const ReplayRule& rule);
std::unique_ptr<StatisticLane> make_statistic_lane(Statistic statistic, const Scenario& scenario,
                                                   const ReplayRule& rule);

// Consumer 0 of `stream`. Calls report(step, statistic, result) for each of them after each step;
// blocks until the last, or until the stream ends or the deadline (of each wait) has passed.
template <class Report>
void run_statistics(const Scenario& scenario, const ReplayRule& rule,
                    const std::vector<Statistic>& statistics, StateStream& stream,
                    Deadline deadline, Report&& report) {
  const int64_t state_bytes = statistic_item(scenario).layout.bytes;
  std::vector<std::unique_ptr<StatisticLane>> lanes;
  for (const Statistic statistic : statistics)
    lanes.push_back(make_statistic_lane(statistic, scenario, rule));
  for (int64_t step = 1; step <= scenario.steps; ++step) {
    const std::byte* item = stream.begin_read(0, step - 1, deadline);
    if (item == nullptr) return;
    for (size_t i = 0; i < lanes.size(); ++i)
      report(step, statistics[i], lanes[i]->judge(step, item, item + state_bytes));
    stream.end_read(0);
  }
}

}  // namespace lockstep
