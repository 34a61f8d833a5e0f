#include "scenarios/workloads/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

SavedTensor saved(const std::string& group, const NamedTensor& named) {
  const at::Tensor dense = named.tensor.detach().contiguous();
  SavedTensor tensor{group, named.name, to_word(dense.scalar_type()), dense.sizes().vec(), {}};
  tensor.bytes.assign(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
  tensor.device = device_name(dense.device());
  return tensor;
}

std::vector<const SavedTensor*> of_group(const std::vector<SavedTensor>& tensors,
                                         const std::string& group) {
  std::vector<const SavedTensor*> found;
  for (const SavedTensor& tensor : tensors)
    if (tensor.group == group) found.push_back(&tensor);
  return found;
}

std::string text_of(const SavedTensor& tensor) {
  return fmt::format("{} [{}] of {}", tensor.name, fmt::join(tensor.shape, " "), tensor.dtype);
}

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw CheckpointError(fmt::format("checkpoint {}: {}", path, what));
}

// The file's tensors of a group must be the training's, one after the other.
void compare_group(const CheckpointFile& file, const std::string& path, const std::string& group,
                   const std::vector<SavedTensor>& wanted) {
  const auto held = of_group(file.tensors, group);
  for (size_t i = 0; i < std::max(held.size(), wanted.size()); ++i) {
    if (i >= held.size()) fail(path, fmt::format("holds no {} {}", group, text_of(wanted[i])));
    if (i >= wanted.size())
      fail(path, fmt::format("holds {} {}, which this run has not", group, text_of(*held[i])));
    if (text_of(*held[i]) != text_of(wanted[i]) || held[i]->bytes.size() != wanted[i].bytes.size())
      fail(path, fmt::format("holds {} {} where this run has {}", group, text_of(*held[i]),
                             text_of(wanted[i])));
  }
}

std::vector<SavedTensor> of_tensors(const std::string& group, const NamedTensors& tensors) {
  std::vector<SavedTensor> result;
  for (const NamedTensor& named : tensors)
    if (named.tensor.defined()) result.push_back(saved(group, named));
  return result;
}

c10::ScalarType type_of(const SavedTensor& saved) {
  for (auto type : {c10::kFloat, c10::kDouble, c10::kHalf, c10::kBFloat16, c10::kLong, c10::kInt,
                    c10::kByte, c10::kBool})
    if (saved.dtype == to_word(type)) return type;
  throw CheckpointError(fmt::format("checkpoint: {} has an unknown dtype", text_of(saved)));
}

at::Tensor tensor_of(const SavedTensor& saved) {
  at::Tensor tensor = at::empty(saved.shape, at::TensorOptions().dtype(type_of(saved)));
  LOCKSTEP_CHECK(tensor.nbytes() == saved.bytes.size(), saved.name + " has another size");
  std::memcpy(tensor.data_ptr(), saved.bytes.data(), saved.bytes.size());
  return tensor;
}

void copy_group(const CheckpointFile& file, const std::string& group, const NamedTensors& into) {
  const auto held = of_group(file.tensors, group);
  for (size_t i = 0; i < held.size(); ++i) at::Tensor(into[i].tensor).copy_(tensor_of(*held[i]));
}

// "fc1.weight.momentum_buffer" belongs to "fc1.weight".
c10::Device device_of_state(const std::string& state, const Training& training) {
  for (const NamedTensor& parameter : training.parameters)
    if (state.starts_with(parameter.name + ".")) return parameter.tensor.device();
  return at::kCPU;
}

// State that the parameter's first update has not made yet is in no file.
NamedTensors state_of(const CheckpointFile& file, const std::string& path, const Training& training,
                      const DeviceMap& device_map) {
  NamedTensors state = training.optimizer->state();
  const auto held = of_group(file.tensors, "optimizer_state");
  size_t next = 0;
  for (NamedTensor& named : state) {
    named.tensor = at::Tensor();
    if (next == held.size() || held[next]->name != named.name) continue;
    const SavedTensor& saved = *held[next++];
    named.tensor = tensor_of(saved);
    if (saved.device != "cpu")  // counters lie there always
      named.tensor = named.tensor.to(device_map ? device_map(saved.device)
                                                : device_of_state(named.name, training));
  }
  if (next < held.size())
    fail(path,
         fmt::format("holds optimizer state {}, which this run has not", text_of(*held[next])));
  if (held.empty() && !state.empty()) fail(path, "holds no optimizer state");
  return state;
}

}  // namespace

std::vector<SavedTensor> saved_tensors(const Training& training, bool optimizer_state) {
  std::vector<SavedTensor> tensors = of_tensors("parameter", training.parameters);
  const auto add = [&](std::vector<SavedTensor> more) {
    std::move(more.begin(), more.end(), std::back_inserter(tensors));
  };
  add(of_tensors("buffer", training.buffers));
  if (optimizer_state) add(of_tensors("optimizer_state", training.optimizer->state()));
  tensors.push_back(saved("generator", {"cpu", generator_state()}));
  return tensors;
}

void restore(const CheckpointFile& file, const std::string& path, bool optimizer_state,
             Training* training, const DeviceMap& device_map) {
  const c10::NoGradGuard no_grad;
  compare_group(file, path, "parameter", of_tensors("parameter", training->parameters));
  compare_group(file, path, "buffer", of_tensors("buffer", training->buffers));
  compare_group(file, path, "generator", {saved("generator", {"cpu", generator_state()})});
  NamedTensors state;
  if (optimizer_state) state = state_of(file, path, *training, device_map);
  copy_group(file, "parameter", training->parameters);
  copy_group(file, "buffer", training->buffers);
  if (!state.empty()) training->optimizer->load(state);
  set_generator_state(tensor_of(*of_group(file.tensors, "generator").front()));
  clear_gradients(training->parameters, "none");
}

std::string first_not_restored(const std::vector<SavedTensor>& before,
                               const std::vector<SavedTensor>& after) {
  for (const char* group : {"parameter", "optimizer_state"}) {
    const auto old = of_group(before, group);
    const auto now = of_group(after, group);
    for (size_t i = 0; i < std::max(old.size(), now.size()); ++i) {
      if (i >= now.size()) return fmt::format("{} {} is lost", group, old[i]->name);
      if (i >= old.size()) return fmt::format("{} {} is new", group, now[i]->name);
      if (old[i]->name != now[i]->name || old[i]->bytes != now[i]->bytes)
        return fmt::format("{} {} is not what it was", group, old[i]->name);
      if (old[i]->device != now[i]->device)
        return fmt::format("{} {} lies on {}, not on {}", group, old[i]->name, now[i]->device,
                           old[i]->device);
    }
  }
  return "";
}

double held_out_loss(const Scenario& scenario, const std::string& dtype, int64_t samples,
                     Training* training) {
  const c10::NoGradGuard no_grad;
  const at::Tensor generator = generator_state();
  Part part = scenario.data;
  part.options.set("samples", samples);
  Batch data;
  {
    const RandomSection random(substream_seed(scenario.seed, "held_out"));
    data = draw_data(part, dtype);
  }
  set_generator_state(generator);
  // A forward may change running statistics.
  NamedTensors kept;
  for (const NamedTensor& buffer : training->buffers)
    kept.push_back({buffer.name, buffer.tensor.detach().clone()});
  const double loss =
      loss_of(scenario.loss, training->model->forward(data.input), data.target, 1).item<double>();
  for (size_t i = 0; i < kept.size(); ++i)
    at::Tensor(training->buffers[i].tensor).copy_(kept[i].tensor);
  return loss;
}

}  // namespace lockstep
