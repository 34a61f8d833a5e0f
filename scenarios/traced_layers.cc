#include "scenarios/traced_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "scenarios/profiler/kineto_training.h"

namespace lockstep {
namespace {

InputError unsuited(const std::string& message, const std::string& allowed) {
  return {.file = "",
          .line = 0,
          .column = 0,
          .pointer = "/compute/profile",
          .message = "the trace does not suit: " + message,
          .allowed = allowed};
}

std::string text_of_shape(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// A single number has a shape without sizes, or one of 1.
bool same_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const std::vector<int64_t> one{1};
  return (a.empty() ? one : a) == (b.empty() ? one : b);
}

std::vector<size_t> trained_in(const Scenario& scenario, const ModelManifest& manifest) {
  std::vector<size_t> trained;
  for (size_t p = 0; p < manifest.parameters.size(); ++p)
    if (!is_frozen(scenario, manifest.parameters[p].name)) trained.push_back(p);
  return trained;
}

// Gradient g is that of trained[size - 1 - g].
std::optional<InputError> problem_with_model(const KinetoTraining& training,
                                             const Scenario& scenario,
                                             const ModelManifest& manifest,
                                             const std::vector<size_t>& trained) {
  constexpr const char* kSameFile =
      "a model of kind \"parameters\" whose file is this trace, or one that registers its "
      "parameters in the reverse order of their gradients";
  const size_t count = training.shapes.size();
  if (count != trained.size())
    return unsuited(fmt::format("it has {} gradients, but the model {} trained parameters", count,
                                trained.size()),
                    kSameFile);
  for (size_t i = 0; i < count; ++i) {
    const TensorSpec& parameter = manifest.parameters[trained[i]];
    const auto& shape = training.shapes[count - 1 - i];
    if (!same_shape(shape, parameter.shape))
      return unsuited(
          fmt::format("where the model has {} of {} it has a gradient of {}", parameter.name,
                      text_of_shape(parameter.shape), text_of_shape(shape)),
          kSameFile);
  }
  const std::string dtype = scenario_dtype(training.dtype);
  if (dtype == scenario.dtype) return std::nullopt;
  return unsuited(
      fmt::format("its gradients are {}, but the scenario's {}", training.dtype, scenario.dtype),
      "/dtype \"" + dtype + "\"");
}

LayerTimes layers_of(const GradientTimes& times, double forward_ms, const ModelManifest& manifest,
                     const std::vector<size_t>& trained) {
  std::vector<double> ready_ms(manifest.parameters.size(), 0);
  for (size_t i = 0; i < trained.size(); ++i)
    ready_ms[trained[i]] = times.ready_ms[trained.size() - 1 - i];
  const double backward_ms = times.ready_ms.back();
  LayerTimes layers(manifest.layers.size());
  double last_ms = 0;
  for (size_t l = layers.size(); l-- > 0;) {
    double done_ms = last_ms;
    for (const int64_t p : manifest.layers[l].parameters)
      done_ms = std::max(done_ms, ready_ms[static_cast<size_t>(p)]);
    const double own_ms = done_ms - last_ms;
    const double share =
        backward_ms > 0 ? own_ms / backward_ms : 1 / static_cast<double>(layers.size());
    layers[l] = {manifest.layers[l].name, forward_ms * share, own_ms};
    last_ms = done_ms;
  }
  return layers;
}

}  // namespace

std::string scenario_dtype(const std::string& traced) {
  return traced == "float16" ? "bfloat16" : traced;
}

Expected<LayerTimes> traced_layers(const std::string& path, const Scenario& scenario,
                                   const ModelManifest& manifest) {
  const auto trace = read_kineto_trace(path);
  const auto training = trace ? training_of(trace.value()) : trace.errors();
  if (!training)
    return unsuited(to_text(training.errors()[0]), "a trace of one training, with shapes");
  const std::vector<size_t> trained = trained_in(scenario, manifest);
  if (auto problem = problem_with_model(training.value(), scenario, manifest, trained))
    return *problem;
  const GradientTimes times = gradient_times(training.value());
  if (!times.forward_ms && !scenario.compute.options.has("forward_ms"))
    return unsuited("no forward has its begin in it",
                    "a trace of several steps, or compute.forward_ms");
  return layers_of(times, times.forward_ms.value_or(0), manifest, trained);
}

}  // namespace lockstep
