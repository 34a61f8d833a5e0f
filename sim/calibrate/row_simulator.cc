#include "sim/calibrate/row_simulator.h"

#include <cmath>
#include <limits>

#include "sim/calibrate/alternatives.h"
#include "sim/des/cost.h"
#include "sim/des/simulate.h"
#include "sim/plan/bucket_layout.h"

namespace lockstep {
namespace {

constexpr int kMostGuesses = 100;
constexpr double kNear = 1e-7;
constexpr double kNarrow = 1e-10;  // of a value whose rounding to ns makes a stair
constexpr int64_t kSteps = 3;      // buckets are rebuilt after the first

}  // namespace

bool RowSimulator::has_cap() const { return lockstep::has_cap(plan_); }

Expected<PlannedJob> RowSimulator::job(const Guess& guess, const Place& place) const {
  return job_of(guess, place, false);
}

Expected<PlannedJob> RowSimulator::job_of(const Guess& guess, const Place& place,
                                          bool taken_before) const {
  MachineModel machine = guess.machine;
  const double of_pass = guess.fixed + (1 - guess.fixed) * place.batch;
  RunPlan plan = with_compute(plan_, guess.compute * of_pass, &machine);
  if (place.passes) plan.scenario.accumulate_steps = *place.passes;
  SimulatedAs as;
  as.ranks = place.ranks;
  as.steps = kSteps;
  as.taken_before = taken_before;
  if (place.cap_mb) as.cap_mb = place.cap_mb;
  return job_of_plan(plan, machine, as);
}

bool RowSimulator::crosses_hosts(const MachineModel& machine, int64_t ranks) const {
  CostModel cost = machine.cost;
  cost.algorithm = algorithm_of(plan_.scenario, machine);
  return goes_across(cost, ranks);
}

double RowSimulator::step_ms(const Guess& guess, const Place& place) const {
  auto planned = job_of(guess, place, true);
  if (!planned) return std::numeric_limits<double>::infinity();
  planned.value().job.collective_ns = 0;
  planned.value().job.rebuild_ns = 0;  // once in a training of any length
  const auto run = simulate(planned.value().job, {});
  if (!run || run.value().failure) return std::numeric_limits<double>::infinity();
  return numbers_of(planned.value().job, run.value()).step_ms;
}

std::optional<double> value_giving(double ms, double least, double most,
                                   const std::function<double(double)>& step_ms) {
  double below = step_ms(least) - ms, above = step_ms(most) - ms;
  if (below >= 0 || above < 0) return std::nullopt;
  double excess = above;  // of `most`, without a weight
  double width = most - least;
  bool bisects = false;
  int moved = 0;  // the end that moved last
  for (int i = 0; i < kMostGuesses && excess > ms * kNear && most - least > most * kNarrow; ++i) {
    double middle = least + (most - least) * -below / (above - below);
    if (std::isinf(above))
      middle = least > 0 ? std::sqrt(least * most) : (least + most) / 2;
    else if (bisects || middle <= least || middle >= most)
      middle = (least + most) / 2;
    const double at = step_ms(middle) - ms;
    const int moves = at < 0 ? -1 : 1;
    (at < 0 ? least : most) = middle;
    (at < 0 ? below : above) = at;
    if (at >= 0) excess = at;
    if (moves == moved) (at < 0 ? above : below) /= 2;
    moved = moves;
    bisects = i % 2 == 1 && most - least > width / 4;
    if (i % 2 == 1) width = most - least;
  }
  return most;
}

}  // namespace lockstep
