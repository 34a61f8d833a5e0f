#pragma once

#include <memory>
#include <vector>

#include "golden/statistics.h"
#include "tests/golden/torch/scenarios.h"

namespace lockstep {

using MakeLane = std::unique_ptr<StatisticLane> (*)(const Scenario&, const ReplayRule&);

// What a lane says of every step of a run by `rule`; change(state) may damage the states it sees.
template <class Change>
std::vector<StatisticStep> judged(MakeLane make, const Scenario& scenario, const ReplayRule& rule,
                                  Change change) {
  const auto items = items_of(scenario, GoldenKind::replay, rule);
  const auto lane = make(scenario, {});
  std::vector<StatisticStep> results;
  for (size_t step = 1; step < items.size(); ++step) {
    auto after = items[step];
    change(after);
    results.push_back(
        lane->judge(static_cast<int64_t>(step), items[step - 1].data(), after.data()));
  }
  return results;
}

inline float* gradient_in(const StateLayout& layout, size_t entry, std::vector<std::byte>& state) {
  return reinterpret_cast<float*>(state.data() + layout.entries[entry].offset);
}

}  // namespace lockstep
