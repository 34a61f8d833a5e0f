#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/plan/rules.h"

namespace lockstep {
namespace {

constexpr std::array kNames = {"collective_ms", "construction_ms", "step_ms", "rendezvous_ms",
                               "run_ms"};

void scale(const char* key, double factor, Options* options) {
  if (options->has(key)) options->set(key, options->number(key) * factor);
}

// Of a step, from above where it is given.
int64_t emulated_ms(const Scenario& scenario) {
  const Options& options = scenario.compute.options;
  if (!options.has("forward_ms")) return 0;
  const double forward = options.number("forward_ms");
  const double backward = options.has("backward_ms") ? options.number("backward_ms") : 2 * forward;
  return std::llround((forward + backward) * static_cast<double>(scenario.accumulate_steps));
}

}  // namespace

void scale_times(Scenario* scenario) {
  const double factor = scenario->time_scale;
  if (factor == 1) return;
  Timeouts& t = scenario->timeouts;
  for (int64_t* given :
       {&t.collective_ms, &t.construction_ms, &t.step_ms, &t.rendezvous_ms, &t.run_ms})
    if (*given != 0)
      *given = std::max<int64_t>(1, std::llround(static_cast<double>(*given) * factor));
  for (Fault& fault : scenario->faults) scale("duration_ms", factor, &fault.options);
  for (const char* key : {"forward_ms", "backward_ms"})
    scale(key, factor, &scenario->compute.options);
}

void complete_timeouts(const Scenario& scenario, Timeouts* timeouts, InputErrors* errors) {
  const std::array<int64_t*, 5> values = {&timeouts->collective_ms, &timeouts->construction_ms,
                                          &timeouts->step_ms, &timeouts->rendezvous_ms,
                                          &timeouts->run_ms};
  size_t last_given = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (*values[i] == 0) continue;
    const bool any_before = last_given < i;
    if (any_before && *values[i] < *values[last_given])
      errors->push_back(
          {"", 0, 0, fmt::format("/timeouts/{}", kNames[i]),
           fmt::format("/timeouts/{} is {}, less than /timeouts/{}, which is {}", kNames[i],
                       *values[i], kNames[last_given], *values[last_given]),
           fmt::format("an integer >= {}", *values[last_given])});
    last_given = i;
  }
  // A tenth of a second a step is far more than any shipped model takes by itself.
  const int64_t emulated = 2 * emulated_ms(scenario);
  const std::array<int64_t, 5> defaults = {
      30'000, 60'000, 120'000 + emulated, 120'000,
      std::max<int64_t>(600'000, scenario.steps * (100 + emulated))};
  int64_t least = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t most = INT64_MAX;
    for (size_t j = i + 1; j < values.size(); ++j)
      if (*values[j] != 0) most = std::min(most, *values[j]);
    if (*values[i] == 0) *values[i] = std::min(std::max(defaults[i], least), most);
    least = *values[i];
  }
}

}  // namespace lockstep
