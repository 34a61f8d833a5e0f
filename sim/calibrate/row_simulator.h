#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "scenarios/base/error.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"

namespace lockstep {

// What is simulated of a published row: a machine, and how many times as long as the plan's its
// compute takes.
struct Guess {
  MachineModel machine;
  double compute = 1;
  double fixed = 0;  // part of the fitted row's compute that is there whatever a pass's samples
};
// Half at most: nobody knows how much of a pass is launches and reading of weights, and what its
// kernels make of fewer samples.
inline constexpr double kMostFixed = 0.5;

// Of a row that the table is asked about.
struct Place {
  int64_t ranks = 1;
  std::optional<double> cap_mb;
  std::optional<int64_t> passes;
  double batch = 1;  // samples of a pass, as a multiple of the fitted row's
};

class RowSimulator {
 public:
  explicit RowSimulator(const RunPlan& plan) : plan_(plan) {}

  // Of layers by timer: the scenario says how long they take.
  bool is_emulated() const { return !plan_.layer_times.empty(); }
  bool has_cap() const;

  Expected<PlannedJob> job(const Guess& guess, const Place& place) const;
  bool crosses_hosts(const MachineModel& machine, int64_t ranks) const;

  // Of a place whose job() is there on some machine. Infinite where the run does not come to its
  // end, or its numbers are out of range: too long.
  double step_ms(const Guess& guess, const Place& place) const;

 private:
  Expected<PlannedJob> job_of(const Guess& guess, const Place& place, bool taken_before) const;
  const RunPlan& plan_;
};

// A value from which on a step takes `ms`, by less than a ten-millionth more, or as closely as
// times in nanoseconds allow. Steps never get shorter with it. By the Illinois method, for bends,
// bisected where that does not narrow it fast enough.
std::optional<double> value_giving(double ms, double least, double most,
                                   const std::function<double(double)>& step_ms);

}  // namespace lockstep
