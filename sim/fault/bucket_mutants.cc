#include "sim/fault/bucket_mutants.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/fault/faulty_work.h"

namespace lockstep {
namespace {

constexpr const char* kOperations[] = {"flip",  "drop",  "double", "swap",
                                       "shift", "stale", "cast",   "flush"};

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

// As units do that have no denormal numbers, or are told to do without.
void flush(const at::Tensor& flat) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, flat.scalar_type(), "flush", [&] {
    const auto smallest = static_cast<double>(std::numeric_limits<scalar_t>::min());
    flat.masked_fill_(flat.abs().lt(smallest), 0);
  });
}

template <class Bits>
void flip(void* data, int64_t bit) {
  auto* bits = static_cast<Bits*>(data);
  *bits = static_cast<Bits>(*bits ^ (Bits{1} << bit));
}

constexpr const char* kPlace = "contribution";

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
  if (operation == "flush") flush(flat);
  if (operation != "stale") return true;
  if (!last.defined() || last.numel() != flat.numel()) return false;
  flat.copy_(last.view({-1}));
  return true;
}

void BucketMutants::remember(const std::vector<MutantSpec>& mutants, int64_t bucket,
                             const at::Tensor& addend) {
  const auto stale = [](const MutantSpec& mutant) { return mutant.kind == "stale_contribution"; };
  if (addend.is_sparse() || std::none_of(mutants.begin(), mutants.end(), stale)) return;
  const c10::NoGradGuard no_grad;
  Addends& known = addends_[bucket];
  known.last = std::exchange(known.now, addend.clone());
}

bool BucketMutants::change_addend(const MutantSpec& mutant, int64_t bucket,
                                  const at::Tensor& addend) const {
  const auto operation = operation_at(mutant.kind, kPlace);
  if (!operation) return false;
  const auto known = addends_.find(bucket);
  return damage(*operation, mutant, known == addends_.end() ? at::Tensor() : known->second.last,
                addend);
}

std::function<void()> BucketMutants::short_slice(const MutantSpec& mutant,
                                                 const at::Tensor& tensor) {
  if (mutant.kind != "short_slice" || tensor.is_sparse() || tensor.numel() == 0) return nullptr;
  const at::Tensor flat = tensor.view({-1});
  const int64_t from = std::min(mutant.element.value_or(0), flat.numel() - 1);
  const at::Tensor part = flat.narrow(0, from, flat.numel() - from);
  return [part, own = part.clone()] {
    const c10::NoGradGuard no_grad;
    at::Tensor(part).copy_(own);
  };
}

CommWorkPtr reordered_all_reduce(Communicator& group, const at::Tensor& tensor, Deadline deadline) {
  const int64_t ranks = group.world_size();
  const at::Tensor all = at::empty({ranks, tensor.numel()}, tensor.options());
  CommWorkPtr work = group.all_gather(all, tensor, deadline);
  return std::make_shared<ChangedWork>(std::move(work), [all, ranks, tensor] {
    const c10::NoGradGuard no_grad;
    at::Tensor sum = all.select(0, ranks - 1).clone();
    for (int64_t rank = ranks - 2; rank >= 0; --rank) sum.add_(all.select(0, rank));
    at::Tensor(tensor).view({-1}).copy_(sum);
  });
}

CommWorkPtr unheard_broadcast(Communicator& group, const at::Tensor& tensor, int64_t root,
                              Deadline deadline) {
  const at::Tensor copy = tensor.clone();
  return std::make_shared<ChangedWork>(group.broadcast(copy, root, deadline), [copy] {});
}

}  // namespace lockstep
