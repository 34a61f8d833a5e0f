#include "sim/des/units_of_plan.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"

namespace lockstep {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "3", or where numbers do not stand by themselves "block3".
bool is_numbered(std::string_view part, bool by_itself) {
  if (part.empty()) return false;
  return by_itself ? std::all_of(part.begin(), part.end(), is_digit) : is_digit(part.back());
}

bool has_numbers(const ModelManifest& manifest) {
  return std::any_of(
      manifest.parameters.begin(), manifest.parameters.end(),
      [](const TensorSpec& parameter) { return !unit_of_name(parameter.name, true).empty(); });
}

// In equal parts by their first dimension, as FSDP2 cuts them, padded where it does not divide.
int64_t padded_numel(const TensorSpec& parameter, int64_t ranks) {
  if (parameter.shape.empty()) return ranks;
  const int64_t rows = parameter.shape.front();
  return (rows + ranks - 1) / ranks * ranks * (parameter.numel() / rows);
}

// From the begin of forward and of backward, as parts of each.
struct Span {
  double forward = 1, backward = 1, done = 0;
  size_t first_layer = 0;
};

Expected<LayerTimes> times_of_layers(const RunPlan& plan, const ComputeTimes& times) {
  if (!plan.layer_times.empty()) return plan.layer_times;
  Scenario scenario = plan.scenario;
  scenario.compute = {"emulated", {}};
  scenario.compute.options.set("forward_ms", static_cast<double>(times.forward_ns) * 1e-6);
  scenario.compute.options.set("backward_ms", static_cast<double>(times.backward_ns) * 1e-6);
  return layer_times(scenario);
}

// Of each unit that has layers; a layer without parameters, as attention, is its block's.
std::map<std::string, Span> spans_of(const LayerTimes& layers, bool by_itself) {
  double forward = 0, all_forward = 0;
  for (const LayerTime& layer : layers) all_forward += layer.forward_ms;
  const double all_backward = layers.empty() ? 0 : layers.front().ready_ms;
  const auto part = [](double ms, double of) { return of > 0 ? std::clamp(ms / of, 0.0, 1.0) : 0; };
  std::map<std::string, Span> spans;
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerTime& layer = layers[l];
    const auto [found, is_new] = spans.try_emplace(unit_of_name(layer.layer, by_itself));
    Span& span = found->second;
    if (is_new) span.first_layer = l;
    span.forward = std::min(span.forward, part(forward, all_forward));
    span.backward = std::min(span.backward, part(layer.ready_ms - layer.backward_ms, all_backward));
    span.done = std::max(span.done, part(layer.ready_ms, all_backward));
    forward += layer.forward_ms;
  }
  return spans;
}

// Units in the order of forward, the root's first.
std::vector<std::string> names_in_order(const std::map<std::string, Span>& spans) {
  std::vector<std::string> names;
  for (const auto& [name, span] : spans)
    if (!name.empty()) names.push_back(name);
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return spans.at(a).first_layer < spans.at(b).first_layer;
  });
  names.insert(names.begin(), "");
  return names;
}

int64_t part_of(double part, int64_t ns) { return std::llround(part * static_cast<double>(ns)); }

// Compute goes from one unit to the next: layers of several that take turns are the earlier one's.
void fill_times(const std::map<std::string, Span>& spans, const ComputeTimes& times,
                UnitsOfPlan* units) {
  int64_t forward_ns = 0, backward_ns = times.backward_ns;
  for (size_t u = 1; u < units->names.size(); ++u) {
    ParameterShards::Unit& unit = units->parts.units[u];
    const Span& span = spans.at(units->names[u]);
    unit.forward_ns = std::max(forward_ns, part_of(span.forward, times.forward_ns));
    unit.done_ns = std::min(backward_ns, part_of(span.done, times.backward_ns));
    unit.backward_ns = std::min(unit.done_ns, part_of(span.backward, times.backward_ns));
    forward_ns = unit.forward_ns;
    backward_ns = unit.backward_ns;
  }
}

// What the reducer costs compute: gradients are copied into what is reduced, whatever their type.
BucketWork work_of(const MachineModel& machine, int64_t bucket, int64_t bytes, int64_t parameters,
                   int64_t ready_ns) {
  const auto copy = static_cast<__int128>(bytes) * machine.copy_fs_per_byte / 1'000'000;
  const int64_t filling_ns = parameters * machine.parameter_ns + static_cast<int64_t>(copy);
  return {bucket, bytes, ready_ns, machine.launch_ns, machine.bucket_ns + filling_ns, filling_ns};
}

}  // namespace

bool holds_parts(const Scenario& scenario) { return scenario.reducer.kind == "fsdp"; }

std::string gathered_dtype(const Scenario& scenario) {
  const Options& options = scenario.reducer.options;
  return options.has("gather_dtype") ? options.text("gather_dtype") : scenario.dtype;
}

std::string reduced_dtype(const Scenario& scenario) {
  const Options& options = scenario.reducer.options;
  return options.has("reduce_dtype") ? options.text("reduce_dtype") : gathered_dtype(scenario);
}

std::string unit_of_name(const std::string& name, bool by_itself) {
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    if (is_numbered(std::string_view(name).substr(at, end - at), by_itself))
      return name.substr(0, end);
    at = end + 1;
  }
  return "";
}

Expected<UnitsOfPlan> units_of_plan(const RunPlan& plan, const MachineModel& machine,
                                    const ComputeTimes& times, int64_t ranks) {
  const Scenario& scenario = plan.scenario;
  const auto manifest = manifest_of(scenario.model, scenario.dtype);
  LOCKSTEP_CHECK(manifest != nullptr, "units of a model that is not known");
  const auto layers = times_of_layers(plan, times);
  if (!layers) return layers.errors();
  const bool by_itself = has_numbers(*manifest);
  const auto spans = spans_of(layers.value(), by_itself);
  UnitsOfPlan units;
  units.names = names_in_order(spans);
  units.parts.units.resize(units.names.size());
  fill_times(spans, times, &units);
  const Options& options = scenario.reducer.options;
  if (options.has("shard_ranks")) {
    const int64_t held_by = options.integer("shard_ranks");
    if (held_by < ranks) units.parts.shard_ranks = ranks = held_by;
  }
  if (options.has("prefetch")) units.parts.prefetch = options.integer("prefetch");
  if (options.has("reshard_after_forward"))
    units.parts.reshard = options.flag("reshard_after_forward");
  std::vector<std::vector<int64_t>> members(units.names.size());
  std::vector<int64_t> numels(units.names.size());
  for (size_t p = 0; p < manifest->parameters.size(); ++p) {
    const TensorSpec& parameter = manifest->parameters[p];
    const auto found =
        std::find(units.names.begin(), units.names.end(), unit_of_name(parameter.name, by_itself));
    const auto u =
        static_cast<size_t>(found == units.names.end() ? 0 : found - units.names.begin());
    members[u].push_back(static_cast<int64_t>(p));
    numels[u] += padded_numel(parameter, ranks);
  }
  const int64_t gathered = dtype_bytes(gathered_dtype(scenario));
  const int64_t reduced = dtype_bytes(reduced_dtype(scenario));
  for (size_t u = 0; u < numels.size(); ++u) units.parts.units[u].bytes = numels[u] * gathered;
  for (size_t u = units.names.size(); u-- > 0;) {
    const int64_t ready_ns = u == 0 ? times.backward_ns : units.parts.units[u].done_ns;
    units.works.push_back(work_of(machine, static_cast<int64_t>(units.works.size()),
                                  numels[u] * reduced, static_cast<int64_t>(members[u].size()),
                                  ready_ns));
    units.layout.push_back(std::move(members[u]));
  }
  return units;
}

}  // namespace lockstep
