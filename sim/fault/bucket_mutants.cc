#include "sim/fault/bucket_mutants.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "sim/fault/changed_work.h"
#include "sim/fault/damage.h"

namespace lockstep {
namespace {

constexpr const char* kPlace = "contribution";

}  // namespace

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
