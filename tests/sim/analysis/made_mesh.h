#pragma once

#include <algorithm>
#include <vector>

#include "tests/sim/analysis/made_run.h"

namespace lockstep {

// A run of four ranks with a row and a column each: groups "1" to "4", which PyTorch numbers as
// they are made. In each of its steps a rank all-reduces 4,000 floats in its row, then in its
// column.
inline RunOutcome made_mesh(int64_t steps = 2) {
  MadeRun run;
  run.world_size = 4;
  run.steps = steps;
  RunOutcome outcome = run.make();
  outcome.own_bytes = true;
  outcome.plan.scenario.communicator.kind = "gloo";
  outcome.plan.scenario.timeouts.collective_ms = 600;
  outcome.groups = {{{"3", {0, 2}, "column", 700}, {"1", {0, 1}, "row"}},
                    {{"1", {0, 1}}, {"4", {1, 3}}},
                    {{"2", {2, 3}}, {"3", {0, 2}}},
                    {{"2", {2, 3}}, {"4", {1, 3}}}};
  for (size_t rank = 0; rank < 4; ++rank) {
    std::vector<Event>& events = outcome.ranks[rank].events;
    for (int32_t step = 1; step <= steps; ++step) {
      const auto end = std::find_if(events.begin(), events.end(), [&](const Event& event) {
        return event.step == step && static_cast<EventKind>(event.kind) == EventKind::step_end;
      });
      std::vector<Event> made;
      for (const int32_t call : {0, 1}) {
        const int32_t group = rank == 0 ? 1 - call : call;
        const int64_t at_ns = end->time_ns - 900'000 + call * 400'000 + int64_t{100} * rank;
        made.push_back({at_ns, static_cast<uint32_t>(step), kGroupArrival, end->phase, step, group,
                        pack_collective(1, 6, 16'000)});
        made.push_back(
            {at_ns + 300'000, static_cast<uint32_t>(step), kGroupEnd, end->phase, step, group, 0});
      }
      events.insert(end, made.begin(), made.end());
    }
  }
  return outcome;
}

// As if the rank had ended before its `call` in that group of its own: what it recorded from then
// on is not there.
inline void end_before(RunOutcome* outcome, size_t rank, int32_t group, uint32_t call) {
  std::vector<Event>& events = outcome->ranks[rank].events;
  events.erase(std::find_if(events.begin(), events.end(),
                            [&](const Event& event) {
                              return event.kind == kGroupArrival && event.subject == group &&
                                     event.sequence == call;
                            }),
               events.end());
}
// As if it waited in that call for ever.
inline void stay_in(RunOutcome* outcome, size_t rank, int32_t group, uint32_t call) {
  std::vector<Event>& events = outcome->ranks[rank].events;
  events.erase(std::find_if(events.begin(), events.end(),
                            [&](const Event& event) {
                              return event.kind == kGroupEnd && event.subject == group &&
                                     event.sequence == call;
                            }),
               events.end());
}

}  // namespace lockstep
