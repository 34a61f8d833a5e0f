#include "sim/report/fault_marks.h"

#include <fmt/format.h>

namespace lockstep {

std::string receipt_name(const Scenario& scenario, int32_t subject) {
  const auto place = static_cast<size_t>(subject < kFirstFault ? subject : subject - kFirstFault);
  if (subject >= kFirstFault && place < scenario.faults.size())
    return fmt::format("fault {}: {}", place, to_word(scenario.faults[place].kind));
  if (subject >= 0 && place < scenario.mutants.size())
    return fmt::format("mutant {}: {}", place, scenario.mutants[place].kind);
  return fmt::format("receipt {}", subject);
}

std::vector<FaultMark> fault_marks(const RunOutcome& outcome) {
  std::vector<FaultMark> found;
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank)
    for (const Event& event : outcome.ranks[rank].events) {
      const auto kind = static_cast<EventKind>(event.kind);
      if (kind == EventKind::double_run) break;  // no part of the timeline
      if (kind == EventKind::receipt)
        found.push_back({rank, event.time_ns, receipt_name(outcome.plan.scenario, event.subject),
                         event.subject});
    }
  return found;
}

}  // namespace lockstep
