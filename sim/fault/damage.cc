#include "sim/fault/damage.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr const char* kOperations[] = {"flip", "drop", "double", "swap", "shift", "stale", "cast"};

int64_t element_of(const MutantSpec& mutant, const at::Tensor& flat) {
  return std::min(mutant.element.value_or(0), flat.numel() - 1);
}

void swap_halves(const at::Tensor& flat) {
  const int64_t half = flat.numel() / 2;
  const at::Tensor first = flat.narrow(0, 0, half).clone();
  flat.narrow(0, 0, half).copy_(flat.narrow(0, half, half));
  flat.narrow(0, half, half).copy_(first);
}

void shift(const at::Tensor& flat, int64_t from) {
  const int64_t moved = flat.numel() - 1 - from;
  flat.narrow(0, from + 1, moved).copy_(flat.narrow(0, from, moved).clone());
}

template <class Bits>
void flip(void* data, int64_t bit) {
  auto* bits = static_cast<Bits*>(data);
  *bits = static_cast<Bits>(*bits ^ (Bits{1} << bit));
}

}  // namespace

std::optional<std::string> operation_at(const std::string& kind, const std::string& place) {
  for (const char* operation : kOperations)
    if (kind == std::string(operation) + "_" + place) return operation;
  return std::nullopt;
}

void flip_bit(const MutantSpec& mutant, at::Tensor values) {
  if (values.is_sparse()) values = values._values();
  if (values.numel() == 0) return;
  const int64_t element = element_of(mutant, values);
  const auto bits = static_cast<int64_t>(8 * values.element_size());
  const int64_t mantissa = bits == 64 ? 52 : bits == 32 ? 23 : 7;
  const int64_t bit = std::min(mutant.bit.value_or(mantissa - 1), bits - 1);
  const at::Tensor one = values.view({-1}).narrow(0, element, 1);
  const at::Tensor held = one.cpu();  // the same memory, unless a device has it
  if (bits == 64)
    flip<uint64_t>(held.data_ptr(), bit);
  else if (bits == 32)
    flip<uint32_t>(held.data_ptr(), bit);
  else
    flip<uint16_t>(held.data_ptr(), bit);
  if (!one.device().is_cpu()) one.copy_(held);
}

bool damage(const std::string& operation, const MutantSpec& mutant, const at::Tensor& last,
            at::Tensor values) {
  const c10::NoGradGuard no_grad;
  if (values.is_sparse()) values = values._values();
  if (values.numel() == 0) return false;
  const at::Tensor flat = values.view({-1});
  if (operation == "flip") flip_bit(mutant, flat);
  if (operation == "drop") flat.zero_();
  if (operation == "double") flat.mul_(2);
  if (operation == "swap") swap_halves(flat);
  if (operation == "shift") shift(flat, element_of(mutant, flat));
  if (operation == "cast") flat.copy_(flat.to(at::kBFloat16).to(flat.scalar_type()));
  if (operation != "stale") return true;
  if (!last.defined() || last.numel() != flat.numel()) return false;
  flat.copy_(last.view({-1}));
  return true;
}

}  // namespace lockstep
