#include "sim/fault/acts/schedule.h"

#include <cmath>
#include <numbers>

#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

// In (0, 1), the same on every machine.
double uniform(uint64_t seed, const char* what, uint64_t index) {
  return (static_cast<double>(substream_seed(seed, what, index) >> 11) + 0.5) * 0x1p-53;
}

// duration_ms as fault_duration_ms of the schema says: mean, median or least value.
double drawn(const Options& options, uint64_t seed, uint64_t index) {
  const double duration = options.number("duration_ms");
  if (!options.has("distribution")) return duration;
  const std::string& distribution = options.text("distribution");
  const double spread = options.number("spread");
  const double u = uniform(seed, "duration", index);
  if (distribution == "uniform") return duration * (1 + spread * (2 * u - 1));
  if (distribution == "pareto") return duration * std::pow(u, -1 / spread);
  if (distribution != "lognormal") return duration;
  const double v = uniform(seed, "duration, second", index);
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  return duration * std::exp(spread * normal);
}

}  // namespace

bool FaultSchedule::acts_in(size_t index, int64_t step) const {
  const Fault& fault = scenario_.faults[index];
  const Options& options = fault.options;
  const FaultSteps steps = steps_of(fault, scenario_.steps);
  if (!acts_on_rank(fault, rank_) || step < steps.first || step > steps.last) return false;
  if (options.has("every_steps")) {
    const int64_t every = options.integer("every_steps");
    const int64_t since = step - steps.first;
    if (fault.kind == FaultKind::wandering) return since / every % ranks_of(scenario_) == rank_;
    if (since % every != every - 1) return false;
  }
  if (!options.has("probability") || options.number("probability") >= 1) return true;
  const uint64_t seed = substream_seed(scenario_.seed, "faults", index);
  return uniform(substream_seed(seed, "acts", static_cast<uint64_t>(rank_)), "step",
                 static_cast<uint64_t>(step)) < options.number("probability");
}

Act FaultSchedule::act(size_t index, int64_t step) const {
  const Fault& fault = scenario_.faults[index];
  Act act{index, &fault, 0};
  if (!fault.options.has("duration_ms")) return act;
  const uint64_t seed = substream_seed(scenario_.seed, "faults", index);
  act.duration_ms =
      drawn(fault.options, substream_seed(seed, "of rank", static_cast<uint64_t>(rank_)),
            static_cast<uint64_t>(step));
  return act;
}

template <class Matches>
std::vector<Act> FaultSchedule::matching(int64_t step, Matches matches) const {
  std::vector<Act> acts;
  for (size_t i = 0; i < scenario_.faults.size(); ++i)
    if (matches(scenario_.faults[i]) && acts_in(i, step)) acts.push_back(act(i, step));
  return acts;
}

std::vector<Act> FaultSchedule::at_phase(Phase phase, int64_t step) const {
  return matching(step, [&](const Fault& fault) { return phase_of(fault) == phase; });
}

std::vector<Act> FaultSchedule::at_bucket(int64_t bucket, int64_t step) const {
  return matching(step, [&](const Fault& fault) { return bucket_of(fault) == bucket; });
}

std::vector<Act> FaultSchedule::at_layer(const std::string& layer, int64_t step) const {
  return matching(step, [&](const Fault& fault) {
    return fault.options.has("layer") && fault.options.text("layer") == layer;
  });
}

std::vector<Act> FaultSchedule::of_kind(FaultKind kind, int64_t step) const {
  return matching(step, [&](const Fault& fault) { return fault.kind == kind; });
}

double FaultSchedule::slowdown(int64_t step) const {
  double factor = 1;
  for (const Act& act : matching(step, [](const Fault& f) { return f.options.has("factor"); }))
    factor *= act.fault->options.number("factor");
  return factor;
}

}  // namespace lockstep
