#include "golden/state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void append(StateKind kind, std::string name, int64_t parameter, const at::Tensor& like,
            StateLayout* layout) {
  StateEntry entry;
  entry.kind = kind;
  entry.name = std::move(name);
  entry.parameter = parameter;
  entry.dtype = to_word(like.scalar_type());
  entry.numel = like.numel();
  entry.bytes = static_cast<int64_t>(like.nbytes());
  entry.offset = layout->presence_offset;  // the end so far
  layout->presence_offset = aligned(entry.offset + entry.bytes);
  layout->entries.push_back(std::move(entry));
}

// "fc1.weight.momentum_buffer" belongs to "fc1.weight": optimizers name state in registration
// order, so the search goes on where the last one ended.
int64_t owner_of(const std::string& state, const NamedTensors& parameters, int64_t first) {
  for (auto i = static_cast<size_t>(first); i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name;
    if (state.rfind('.') == name.size() && state.compare(0, name.size(), name) == 0)
      return static_cast<int64_t>(i);
  }
  LOCKSTEP_CHECK(false, "optimizer state " + state + " belongs to no parameter");
}

void copy_values(const StateEntry& entry, const at::Tensor& tensor, std::byte* place) {
  const auto bytes = static_cast<size_t>(entry.bytes);
  if (!tensor.defined()) {
    std::memset(place, 0, bytes);
    return;
  }
  const at::Tensor dense = on_host(tensor.is_sparse() ? tensor.to_dense() : tensor).contiguous();
  LOCKSTEP_CHECK(dense.numel() == entry.numel && dense.nbytes() == bytes,
                 entry.name + " has changed its size or dtype");
  std::memcpy(place, dense.data_ptr(), bytes);
}

// The gap behind the values is written too: states are compared as one run of bytes.
void copy_entry(const StateEntry& entry, const at::Tensor& tensor, std::byte* out) {
  std::byte* place = out + entry.offset;
  copy_values(entry, tensor, place);
  std::memset(place + entry.bytes, 0, static_cast<size_t>(aligned(entry.bytes) - entry.bytes));
}

}  // namespace

StateLayout state_layout(const Training& training, const std::string&) {
  StateLayout layout;
  const NamedTensors& parameters = training.parameters;
  for (size_t i = 0; i < parameters.size(); ++i)
    append(StateKind::gradient, parameters[i].name, static_cast<int64_t>(i), parameters[i].tensor,
           &layout);
  for (const NamedTensor& buffer : training.noted_buffers)
    append(StateKind::buffer, buffer.name, -1, buffer.tensor, &layout);
  for (size_t i = 0; i < parameters.size(); ++i)
    append(StateKind::parameter, parameters[i].name, static_cast<int64_t>(i), parameters[i].tensor,
           &layout);
  int64_t owner = 0;
  for (const NamedTensor& state : training.optimizer->state()) {
    owner = owner_of(state.name, parameters, owner);
    append(StateKind::optimizer_state, state.name, owner,
           state.tensor.defined() ? state.tensor : parameters[static_cast<size_t>(owner)].tensor,
           &layout);
  }
  layout.bytes = aligned(layout.presence_offset + static_cast<int64_t>(layout.entries.size()));
  return layout;
}

StateLayout parameters_of(const StateLayout& layout) {
  StateLayout part = layout;
  const auto is_parameter = [](const StateEntry& entry) {
    return entry.kind == StateKind::parameter;
  };
  const auto first = std::find_if(layout.entries.begin(), layout.entries.end(), is_parameter);
  part.presence_offset += first - layout.entries.begin();  // they stand together
  std::erase_if(part.entries, [&](const StateEntry& entry) { return !is_parameter(entry); });
  return part;
}

void copy_state(const Training& training, const StateLayout& layout, std::byte* out) {
  std::byte* presence = out + layout.presence_offset;
  std::memset(presence, 0, static_cast<size_t>(layout.bytes - layout.presence_offset));
  const NamedTensors states = training.optimizer->state();
  size_t buffer = 0;
  size_t state = 0;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const StateEntry& entry = layout.entries[i];
    const auto put = [&](const at::Tensor& tensor) {
      copy_entry(entry, tensor, out);
      presence[i] = std::byte{tensor.defined()};
    };
    if (entry.kind == StateKind::gradient)
      put(training.parameters[static_cast<size_t>(entry.parameter)].tensor.grad());
    else if (entry.kind == StateKind::buffer)
      put(training.noted_buffers.at(buffer++).tensor);
    else if (entry.kind == StateKind::parameter)
      put(training.parameters[static_cast<size_t>(entry.parameter)].tensor);
    else
      put(states.at(state++).tensor);
  }
}

void copy_gradients(const Training& training, const StateLayout& layout, std::byte* out) {
  for (const StateEntry& entry : layout.entries)
    if (entry.kind == StateKind::gradient)
      copy_values(entry, training.parameters[static_cast<size_t>(entry.parameter)].tensor.grad(),
                  out + entry.offset);
}

int64_t gradients_end(const StateLayout& layout) {
  int64_t end = 0;
  for (const StateEntry& entry : layout.entries)
    if (entry.kind == StateKind::gradient) end = std::max(end, entry.offset + entry.bytes);
  return end;
}

uint64_t hash_gradients(const Training& training) {
  uint64_t hash = 0;
  for (const NamedTensor& parameter : training.parameters) {
    at::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined()) {
      hash = hash64(nullptr, 0, hash);
      continue;
    }
    gradient = on_host(gradient.is_sparse() ? gradient.to_dense() : gradient).contiguous();
    hash = hash64(gradient.data_ptr(), static_cast<size_t>(gradient.nbytes()), hash);
  }
  return hash;
}

std::vector<uint64_t> hash_entries(const StateLayout& layout, const std::byte* state) {
  std::vector<uint64_t> hashes;
  hashes.reserve(layout.entries.size());
  const std::byte* presence = state + layout.presence_offset;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const StateEntry& entry = layout.entries[i];
    hashes.push_back(hash64(state + entry.offset, static_cast<size_t>(entry.bytes),
                            static_cast<uint64_t>(presence[i])));
  }
  return hashes;
}

}  // namespace lockstep
