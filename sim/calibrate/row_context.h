#pragma once

#include <cstdint>

#include "sim/calibrate/published_table.h"
#include "sim/calibrate/row_explanation.h"
#include "sim/calibrate/row_simulator.h"
#include "sim/plan/plan.h"

namespace lockstep {

// The row that a machine is fitted to, where it is simulated, and what is said of it.
class RowContext {
 public:
  RowContext(const RunPlan& plan, const MachineModel& machine)
      : said_passes_(plan.scenario.accumulate_steps), simulator(plan), base{machine} {}

  double passes_of(const PublishedRow& row) const;
  Place place_of(const PublishedRow& row) const;
  double fitted_step_ms(const Guess& guess) const {
    return simulator.step_ms(guess, place_of(fitted));
  }

  bool crosses_hosts(int64_t ranks) const;
  // No row has a network: of one rank, or of what was measured.
  bool has_links() const { return fitted.ranks > 1 && base.machine.cost.tables.empty(); }
  // Does the row go over links between hosts? Where hosts are not told apart all links are alike.
  bool goes_across() const;
  // What a step of several ranks takes beside; once, whatever its passes.
  double most_beside_ms() const { return kMostBeside * fitted.ms / passes_of(fitted); }

 private:
  const int64_t said_passes_;

 public:
  const RowSimulator simulator;
  Guess base;
  PublishedRow fitted;
};

}  // namespace lockstep
