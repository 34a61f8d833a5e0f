#include "sim/plan/bucket_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"

namespace lockstep {
namespace {

std::shared_ptr<const ModelManifest> manifest_of(const RunPlan& plan) {
  return manifest_of(plan.scenario.model, plan.scenario.dtype);
}

// Is it in a bucket?
bool is_reduced(const Scenario& scenario, const TensorSpec& parameter) {
  return !is_frozen(scenario, parameter.name) && !is_ignored(scenario, parameter.name);
}

std::vector<BucketItem> items_of(const Scenario& scenario, const ModelManifest& manifest) {
  std::map<std::string, int32_t> keys;
  std::vector<BucketItem> items;
  for (const TensorSpec& parameter : manifest.parameters) {
    if (!is_reduced(scenario, parameter)) continue;
    const auto next = static_cast<int32_t>(keys.size());
    const int32_t key = keys.try_emplace(parameter.dtype, next).first->second;
    items.push_back({parameter.bytes(), key, parameter.sparse_gradient});
  }
  return items;
}

// Parameter indices of the manifest that are in buckets: where each item comes from.
std::vector<int64_t> trained_of(const Scenario& scenario, const ModelManifest& manifest) {
  std::vector<int64_t> trained;
  for (size_t p = 0; p < manifest.parameters.size(); ++p)
    if (is_reduced(scenario, manifest.parameters[p])) trained.push_back(static_cast<int64_t>(p));
  return trained;
}

// Places in `trained`, which is in order, as a backward comes to them.
std::vector<int64_t> ready_order(const ModelManifest& manifest,
                                 const std::vector<int64_t>& trained) {
  std::vector<int64_t> order;
  std::vector<bool> is_added(trained.size());
  const auto add = [&](int64_t parameter) {
    const auto found = std::lower_bound(trained.begin(), trained.end(), parameter);
    if (found == trained.end() || *found != parameter) return;
    const auto place = static_cast<size_t>(found - trained.begin());
    if (!is_added[place]) order.push_back(static_cast<int64_t>(place));
    is_added[place] = true;
  };
  for (auto layer = manifest.layers.rbegin(); layer != manifest.layers.rend(); ++layer)
    for (auto p = layer->parameters.rbegin(); p != layer->parameters.rend(); ++p) add(*p);
  for (auto p = trained.rbegin(); p != trained.rend(); ++p) add(*p);
  return order;
}

// The largest cap with which each bucket closes where it closes at this one; nothing if none does.
std::optional<int64_t> same_up_to(const std::vector<int64_t>& bucket_bytes, int64_t cap_bytes) {
  std::optional<int64_t> least;
  for (const int64_t bytes : bucket_bytes)
    if (bytes >= cap_bytes && (!least || bytes < *least)) least = bytes;
  return least;
}

// DDP's default if it lies in the range, else the cap with the fewest decimals in MiB that does.
double short_cap(int64_t above, int64_t up_to) {
  const int64_t usual = bytes_of_mib(kDefaultCapMib);
  if (usual > above && usual <= up_to) return kDefaultCapMib;
  double power = 1;
  for (int digits = 0; digits < 7; ++digits, power *= 10) {
    const double mib =
        std::floor(static_cast<double>(up_to) / (1024.0 * 1024.0) * power + 1e-9) / power;
    const int64_t bytes = bytes_of_mib(mib);
    if (bytes > above && bytes <= up_to) return mib;
  }
  return static_cast<double>(up_to) / (1024.0 * 1024.0);
}

}  // namespace

bool has_cap(const RunPlan& plan) {
  const std::string& kind = plan.scenario.reducer.kind;
  return kind == "bucketed" || kind == "c10d" || kind == "sharded" || kind == "invariant";
}

std::optional<BucketLayout> settled_layout(const RunPlan& plan, int64_t cap_bytes) {
  const auto manifest = manifest_of(plan);
  if (!manifest || !has_cap(plan)) return std::nullopt;
  const std::vector<int64_t> trained = trained_of(plan.scenario, *manifest);
  const std::vector<BucketItem> items = items_of(plan.scenario, *manifest);
  const int64_t first_bytes = plan.replay.first_bucket_bytes;
  BucketLayout layout =
      plan.replay.rebuild
          ? rebuilt_layout(items, ready_order(*manifest, trained), first_bytes, cap_bytes)
          : layout_at_construction(items, false, first_bytes, cap_bytes);
  for (auto& bucket : layout)
    for (int64_t& place : bucket) place = trained[static_cast<size_t>(place)];
  return layout;
}

std::vector<int64_t> bytes_of(const RunPlan& plan, const BucketLayout& layout) {
  const auto manifest = manifest_of(plan);
  std::vector<int64_t> bytes;
  for (const auto& bucket : layout) {
    bytes.push_back(0);
    for (const int64_t p : bucket)
      bytes.back() += manifest->parameters[static_cast<size_t>(p)].bytes();
  }
  return bytes;
}

std::vector<double> caps_of_distinct_layouts(const RunPlan& plan, size_t most) {
  std::vector<double> caps;
  BucketLayout last;
  int64_t last_above = 0;
  for (int64_t cap = 1; caps.size() < most;) {
    const auto layout = settled_layout(plan, cap);
    if (!layout) return caps;
    const auto up_to = same_up_to(bytes_of(plan, *layout), cap);
    const bool same = *layout == last;  // as where what closed was the first bucket, by its own cap
    if (same) caps.pop_back();
    if (!same) last_above = cap - 1;
    caps.push_back(
        short_cap(last_above, up_to.value_or(std::max(2 * cap, bytes_of_mib(kDefaultCapMib)))));
    if (!up_to) return caps;
    last = *layout;
    cap = *up_to + 1;
  }
  return caps;
}

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
  LayerTimes times = plan.layer_times;  // whose profile, which may be long, was read with the plan
  if (times.empty()) {
    auto found = layer_times(scenario);
    if (!found) return std::nullopt;
    times = std::move(found.value());
  }
  const double total_ms = times.front().ready_ms;
  const double stretch = total_ms > 0 ? backward_ms / total_ms : 0;
  std::vector<double> ready_ms(manifest->parameters.size(), backward_ms);
  for (size_t l = 0; l < manifest->layers.size(); ++l)
    for (const int64_t p : manifest->layers[l].parameters)
      ready_ms[static_cast<size_t>(p)] = times[l].ready_ms * stretch;
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
