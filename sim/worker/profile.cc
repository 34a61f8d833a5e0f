#include "sim/worker/profile.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <unordered_map>

#include "scenarios/base/clock.h"
#include "scenarios/base/median.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/tensor_hooks.h"
#include "sim/worker/libraries.h"

namespace lockstep {
namespace {

constexpr int64_t kWarmUps = 2;
constexpr double kNsPerMs = 1e6;

// When each layer was first seen in a pass, and when its last gradient was there; 0: never.
struct PassTimes {
  explicit PassTimes(size_t layers) : forward(layers, 0), backward(layers, 0) {}
  std::vector<int64_t> forward, backward;
  int64_t begin_ns = 0, forward_end_ns = 0, backward_begin_ns = 0;
};

// Watches one thread's operations and the gradients of a model, from construction to destruction.
// One at a time in a process.
class Watch {
 public:
  Watch(const ModelManifest& manifest, const NamedTensors& parameters)
      : times_(manifest.layers.size()) {
    for (size_t layer = 0; layer < manifest.layers.size(); ++layer)
      for (const int64_t p : manifest.layers[layer].parameters) {
        const at::Tensor& tensor = parameters[static_cast<size_t>(p)].tensor;
        layers_[tensor.unsafeGetTensorImpl()] = layer;
        if (!tensor.requires_grad()) continue;
        hooks_.add(tensor, [this, layer](const at::Tensor&) {
          times_.backward[layer] = now_ns();
          return at::Tensor();
        });
      }
    current_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Watch::seen)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Watch() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  PassTimes& times() { return times_; }

 private:
  static std::unique_ptr<at::ObserverContext> seen(const at::RecordFunction& function) {
    if (current_->times_.forward_end_ns != 0) return nullptr;
    for (const c10::IValue& input : function.inputs()) {
      if (!input.isTensor()) continue;
      const auto found = current_->layers_.find(input.toTensor().unsafeGetTensorImpl());
      if (found == current_->layers_.end()) continue;
      int64_t& first = current_->times_.forward[found->second];
      if (first == 0) first = now_ns();
    }
    return nullptr;
  }

  static inline Watch* current_ = nullptr;
  PassTimes times_;
  std::unordered_map<const c10::TensorImpl*, size_t> layers_;
  TensorHooks hooks_;
  at::CallbackHandle handle_ = 0;
};

PassTimes measured_pass(const Scenario& scenario, const ModelManifest& manifest,
                        const Training& training, const Batch& batch) {
  clear_gradients(training.parameters, "none");
  Watch watch(manifest, training.parameters);
  PassTimes& times = watch.times();
  times.begin_ns = now_ns();
  const at::Tensor output = forward_of(training, 1, batch);
  times.forward_end_ns = now_ns();
  const at::Tensor loss = loss_of(scenario.loss, output, batch.target, 1);
  times.backward_begin_ns = now_ns();
  loss.backward();
  return times;
}

// Of each layer from where the layer before it ended. Layers that were not seen take no time.
void add_forward(const PassTimes& times, std::vector<std::vector<double>>* ms) {
  int64_t end = times.forward_end_ns;
  for (size_t i = times.forward.size(); i-- > 0;) {
    const int64_t begin = times.forward[i];
    const bool seen = begin != 0 && begin <= end;
    (*ms)[i].push_back(seen ? static_cast<double>(end - begin) / kNsPerMs : 0);
    if (seen) end = begin;
  }
}

void add_backward(const PassTimes& times, std::vector<std::vector<double>>* ms) {
  int64_t begin = times.backward_begin_ns;
  for (size_t i = times.backward.size(); i-- > 0;) {
    const int64_t end = times.backward[i];
    const bool seen = end > begin;
    (*ms)[i].push_back(seen ? static_cast<double>(end - begin) / kNsPerMs : 0);
    if (seen) begin = end;
  }
}

}  // namespace

LayerProfile measure_layers(const RunPlan& plan, int64_t repetitions) {
  const Scenario& scenario = plan.scenario;
  const auto manifest = manifest_of(scenario.model, scenario.dtype);
  if (!manifest)
    throw std::runtime_error("the layers of model " + scenario.model.kind +
                             " are not known: only shipped models can be measured");
  const Setup setup = set_up(scenario, scenario.dtype, 0);
  const auto planned = static_cast<int64_t>(planned_samples(scenario));
  const int64_t samples = std::clamp<int64_t>(planned, 1, setup.data.input.size(0));
  std::vector<int64_t> first(static_cast<size_t>(samples));
  std::iota(first.begin(), first.end(), 0);
  const Batch batch = select(setup.data, first);
  const size_t layers = manifest->layers.size();
  std::vector<std::vector<double>> forward(layers), backward(layers);
  for (int64_t i = 0; i < kWarmUps + repetitions; ++i) {
    const PassTimes times = measured_pass(scenario, *manifest, setup.training, batch);
    if (i < kWarmUps) continue;
    add_forward(times, &forward);
    add_backward(times, &backward);
  }
  LayerProfile profile{profiled_model(scenario),
                       scenario.dtype,
                       samples,
                       batch.input.sizes().slice(1).vec(),
                       repetitions,
                       "",
                       fingerprint(),
                       {}};
  for (size_t i = 0; i < layers; ++i)
    profile.layers.push_back(
        {manifest->layers[i].name, upper_median_of(forward[i]), upper_median_of(backward[i])});
  return profile;
}

}  // namespace lockstep
