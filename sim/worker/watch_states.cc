#include "sim/worker/watch_states.h"

#include <bit>

#include "golden/statistics.h"

namespace lockstep {
namespace {

std::vector<Statistic> statistics_of(const RunPlan& plan) {
  std::vector<Statistic> statistics;
  if (plan.rounding) statistics.push_back(Statistic::rounding);
  if (plan.communication) statistics.push_back(Statistic::communication);
  return statistics;
}

Lane lane_of(Statistic statistic) {
  return statistic == Statistic::rounding ? Lane::rounding : Lane::communication;
}

}  // namespace

void watch_states(const RunPlan& plan, StateStream& stream, Deadline deadline, Recorder& recorder) {
  const auto record = [&](int64_t step, Statistic statistic, const StatisticStep& result) {
    const auto lane = static_cast<int32_t>(lane_of(statistic));
    recorder.set_step(static_cast<int32_t>(step));
    recorder.append(EventKind::statistic, lane, std::bit_cast<uint64_t>(result.r),
                    static_cast<uint32_t>(result.entry));
    if (step == 1)
      recorder.append(EventKind::control, lane, result.control_r > threshold_of(statistic));
  };
  run_statistics(plan.scenario, plan.replay, statistics_of(plan), stream, deadline, record);
}

}  // namespace lockstep
