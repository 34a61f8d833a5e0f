#include "scenarios/layer_times.h"

#include "scenarios/base/check.h"
#include "scenarios/layer_profile.h"
#include "scenarios/manifest.h"

namespace lockstep {
namespace {

LayerTimes by_work(const ModelManifest& manifest) {
  LayerTimes times;
  for (const LayerSpec& layer : manifest.layers) {
    const auto work = static_cast<double>(layer.macs + layer.elements);
    times.push_back({layer.name, work, 2 * work});
  }
  return times;
}

Expected<LayerTimes> by_profile(const Scenario& scenario, const ModelManifest& manifest) {
  const std::string& path = scenario.compute.options.text("profile");
  auto profile = read_profile(path);
  const std::string problem =
      profile ? problem_with(profile.value(), scenario, manifest) : to_text(profile.errors()[0]);
  if (!problem.empty())
    return InputError{.file = "",
                      .line = 0,
                      .column = 0,
                      .pointer = "/compute/profile",
                      .message = profile ? "the profile does not suit: " + problem : problem,
                      .allowed = "what `lockstep profile` writes for this scenario's model"};
  const double share = planned_samples(scenario) / static_cast<double>(profile.value().samples);
  for (LayerTime& time : profile.value().layers) {
    time.forward_ms *= share * scenario.time_scale;
    time.backward_ms *= share * scenario.time_scale;
  }
  return profile.value().layers;
}

// Multiplies one kind of time so that all layers together take `total`; shares that are all 0
// become equal.
void stretch(double total, double LayerTime::*time, LayerTimes* times) {
  double sum = 0;
  for (const LayerTime& layer : *times) sum += layer.*time;
  const double even = total / static_cast<double>(times->size());
  for (LayerTime& layer : *times) layer.*time = sum > 0 ? layer.*time * (total / sum) : even;
}

}  // namespace

double planned_samples(const Scenario& scenario) {
  return static_cast<double>(scenario.batch_size) /
         static_cast<double>(scenario.world_size * scenario.accumulate_steps);
}

Expected<LayerTimes> layer_times(const Scenario& scenario) {
  const auto data = data_shape(scenario.data);
  const auto manifest =
      manifest_of(scenario.model, scenario.dtype, data ? data->input : std::vector<int64_t>{});
  LOCKSTEP_CHECK(manifest.has_value(), "layers of model " + scenario.model.kind);
  const Options& options = scenario.compute.options;
  const bool measured = options.has("profile");
  auto found = measured ? by_profile(scenario, *manifest) : by_work(*manifest);
  if (!found) return found;
  LayerTimes& times = found.value();
  const bool total = options.has("forward_ms");
  if (total) stretch(options.number("forward_ms"), &LayerTime::forward_ms, &times);
  if (options.has("backward_ms"))
    stretch(options.number("backward_ms"), &LayerTime::backward_ms, &times);
  else if (total && !measured)
    stretch(2 * options.number("forward_ms"), &LayerTime::backward_ms, &times);
  double ready_ms = 0;
  for (size_t i = times.size(); i-- > 0;) times[i].ready_ms = ready_ms += times[i].backward_ms;
  return found;
}

}  // namespace lockstep
