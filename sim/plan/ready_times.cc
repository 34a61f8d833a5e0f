#include "sim/plan/ready_times.h"

#include <algorithm>

#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "sim/plan/layout.h"

namespace lockstep {

std::optional<std::vector<double>> planned_ready_ms(const RunPlan& plan, double backward_ms) {
  Scenario scenario = plan.scenario;
  if (scenario.compute.kind == "real") {
    scenario.compute = {"emulated", {}};
    scenario.compute.options.set("forward_ms", backward_ms / 2);
  }
  const auto data = data_shape(scenario.data);
  const auto manifest =
      manifest_of(scenario.model, scenario.dtype, data ? data->input : std::vector<int64_t>{});
  if (!manifest || manifest->layers.empty()) return std::nullopt;
  const auto times = layer_times(scenario);
  if (!times) return std::nullopt;
  const double total_ms = times.value().front().ready_ms;
  const double stretch = total_ms > 0 ? backward_ms / total_ms : 0;
  std::vector<double> ready_ms(manifest->parameters.size(), backward_ms);
  for (size_t l = 0; l < manifest->layers.size(); ++l)
    for (const int64_t p : manifest->layers[l].parameters)
      ready_ms[static_cast<size_t>(p)] = times.value()[l].ready_ms * stretch;
  return ready_ms;
}

std::map<int64_t, double> planned_bucket_ready_ns(const RunPlan& plan) {
  std::map<int64_t, double> ready_ns;
  if (plan.layer_times.empty() || !has_cap(plan)) return ready_ns;
  const double cap_mib = plan.scenario.reducer.options.number("bucket_cap_mb");
  const auto layout = settled_layout(plan, bytes_of_mib(cap_mib));
  const auto ready_ms = planned_ready_ms(plan, plan.layer_times.front().ready_ms);
  if (!layout || !ready_ms) return ready_ns;
  double last = 0;
  for (size_t b = 0; b < layout->size(); ++b) {
    for (const int64_t p : (*layout)[b])
      last = std::max(last, (*ready_ms)[static_cast<size_t>(p)] * 1e6);
    ready_ns[static_cast<int64_t>(b)] = last;
  }
  return ready_ns;
}

}  // namespace lockstep
