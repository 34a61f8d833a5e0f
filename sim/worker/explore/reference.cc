#include "sim/worker/explore/reference.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "golden/golden_run.h"
#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

constexpr std::byte kAbsent[] = {std::byte{'-'}};

// Calls visit(what, parameter, bytes, size, tensor or null where there is none), weights first.
template <class Visit>
void for_values(const NamedTensors& parameters, Visit&& visit) {
  const auto one = [&](const char* what, const NamedTensor& parameter, const at::Tensor& tensor) {
    if (!tensor.defined()) return visit(what, parameter, kAbsent, sizeof kAbsent, tensor);
    const at::Tensor dense = !tensor.is_sparse() && tensor.is_contiguous()
                                 ? tensor
                                 : (tensor.is_sparse() ? tensor.to_dense() : tensor).contiguous();
    visit(what, parameter, static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes(), dense);
  };
  for (const NamedTensor& parameter : parameters) one("parameter", parameter, parameter.tensor);
  for (const NamedTensor& parameter : parameters)
    if (parameter.tensor.requires_grad()) one("gradient", parameter, parameter.tensor.grad());
}

std::string value_text(const std::byte* at, at::ScalarType type) {
  if (type == at::kFloat) {
    float value;
    uint32_t bits;
    std::memcpy(&value, at, sizeof value);
    std::memcpy(&bits, at, sizeof bits);
    return fmt::format("{} {:#010x}", std::isnan(value) ? "NaN" : fmt::format("{:.9g}", value),
                       bits);
  }
  if (type == at::kDouble) {
    double value;
    std::memcpy(&value, at, sizeof value);
    return std::isnan(value) ? "NaN" : fmt::format("{:.17g}", value);
  }
  std::string hex = "0x";
  for (size_t i = c10::elementSize(type); i > 0; --i)
    hex += fmt::format("{:02x}", static_cast<unsigned>(at[i - 1]));
  return hex;
}

bool is_nan(const std::byte* at, at::ScalarType type) {
  if (!c10::isFloatingType(type)) return false;
  const at::Tensor one = at::empty({1}, at::TensorOptions().dtype(type));
  std::memcpy(one.data_ptr(), at, c10::elementSize(type));
  return std::isnan(one.item<double>());
}

std::optional<ScheduleFailure> first_difference(const char* what, const NamedTensor& parameter,
                                                const at::Tensor& tensor, const std::byte* run,
                                                const std::byte* wanted, size_t bytes) {
  if (std::memcmp(run, wanted, bytes) == 0) return std::nullopt;
  ScheduleFailure failure;
  failure.kind = "different_bits";
  if (!tensor.defined()) {
    failure.what = fmt::format("{} of {} is absent", what, parameter.name);
    return failure;
  }
  const at::ScalarType type = tensor.scalar_type();
  const size_t size = c10::elementSize(type);
  size_t first = 0;
  while (std::memcmp(run + first, wanted + first, size) == 0) first += size;
  if (is_nan(run + first, type) && !is_nan(wanted + first, type))
    failure.kind = "use_before_completion";
  const bool is_gradient = what[0] == 'g';
  failure.what = fmt::format("{}{}, element {}: {}, must be {}", is_gradient ? "gradient of " : "",
                             parameter.name, first / size, value_text(run + first, type),
                             value_text(wanted + first, type));
  return failure;
}

const StateEntry& entry_of(const StateLayout& layout, const char* what, const std::string& name) {
  const StateKind kind = what[0] == 'g' ? StateKind::gradient : StateKind::parameter;
  const auto found = std::find_if(
      layout.entries.begin(), layout.entries.end(),
      [&](const StateEntry& entry) { return entry.kind == kind && entry.name == name; });
  LOCKSTEP_CHECK(found != layout.entries.end(), "the golden run lacks " + name);
  return *found;
}

}  // namespace

ExploreReference::ExploreReference(const RunPlan& plan) {
  const auto& goldens = plan.goldens;
  if (std::find(goldens.begin(), goldens.end(), "replay") != goldens.end()) load_golden(plan);
}

void ExploreReference::load_golden(const RunPlan& plan) {
  const Scenario& scenario = plan.scenario;
  const GoldenItem item = golden_item(scenario, GoldenKind::replay, false);
  const int64_t count = scenario.steps + 1;
  const auto at_once = [] { return deadline_after(std::chrono::milliseconds(1)); };
  auto stream = StateStream::in_memory({.slot_bytes = item.bytes, .slots = count});
  run_golden(scenario, GoldenKind::replay, plan.replay, false, *stream, at_once());
  const Setup setup = set_up(scenario, scenario.dtype, 0);
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* state = stream->begin_read(0, i, at_once());
    LOCKSTEP_CHECK(state != nullptr, "a golden run ended early");
    Values values;
    const auto add = [&](const char* what, const NamedTensor& parameter) {
      const StateEntry& entry = entry_of(item.layout, what, parameter.name);
      const auto place = static_cast<size_t>(&entry - item.layout.entries.data());
      const bool present =
          state[item.layout.presence_offset + static_cast<int64_t>(place)] != std::byte{0};
      const std::byte* bytes = present ? state + entry.offset : kAbsent;
      const size_t size = present ? static_cast<size_t>(entry.bytes) : sizeof kAbsent;
      values.bytes.insert(values.bytes.end(), bytes, bytes + size);
      values.hash = hash64(bytes, size, values.hash);
    };
    for (const NamedTensor& parameter : setup.training.parameters) add("parameter", parameter);
    for (const NamedTensor& parameter : setup.training.parameters)
      if (parameter.tensor.requires_grad()) add("gradient", parameter);
    if (i > 0) steps_.push_back(std::move(values));
    stream->end_read(0);
  }
  kind_ = "replay";
}

void ExploreReference::remember(int64_t step, const Training& training) {
  LOCKSTEP_CHECK(static_cast<size_t>(step) == steps_.size() + 1, "steps come in their order");
  Values& values = steps_.emplace_back();
  for_values(training.parameters, [&](const char*, const NamedTensor&, const std::byte* bytes,
                                      size_t size, const at::Tensor&) {
    values.bytes.insert(values.bytes.end(), bytes, bytes + size);
    values.hash = hash64(bytes, size, values.hash);
  });
}

std::optional<ScheduleFailure> ExploreReference::difference(int64_t rank, int64_t step,
                                                            const Training& training) const {
  const Values& wanted = steps_[static_cast<size_t>(step - 1)];
  uint64_t hash = 0;
  for_values(training.parameters,
             [&](const char*, const NamedTensor&, const std::byte* bytes, size_t size,
                 const at::Tensor&) { hash = hash64(bytes, size, hash); });
  if (hash == wanted.hash) return std::nullopt;
  std::optional<ScheduleFailure> failure, of_gradient;
  size_t offset = 0;
  for_values(training.parameters, [&](const char* what, const NamedTensor& parameter,
                                      const std::byte* bytes, size_t size,
                                      const at::Tensor& tensor) {
    auto& first = what[0] == 'g' ? of_gradient : failure;
    if (!first && offset + size <= wanted.bytes.size())
      first = first_difference(what, parameter, tensor, bytes, wanted.bytes.data() + offset, size);
    offset += size;
  });
  if (of_gradient) failure = of_gradient;  // what comes first in a step
  if (!failure) failure = ScheduleFailure{"different_bits", rank, step, "a gradient is absent"};
  failure->rank = rank;
  failure->step = step;
  return failure;
}

}  // namespace lockstep
