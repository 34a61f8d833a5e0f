#include "sim/worker/local_gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "scenarios/workloads/rank_devices.h"

namespace lockstep {

struct LocalGradients::Hook {
  at::Tensor parameter;
  unsigned id;
  std::string name;
  at::Tensor sum;
};

LocalGradients::LocalGradients(const Training& training, const StateLayout& layout) {
  int64_t end = 0;
  for (const StateEntry& entry : layout.entries)
    if (entry.kind == StateKind::gradient) end = std::max(end, entry.offset + entry.bytes);
  bytes_.resize(static_cast<size_t>(end));
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != StateKind::gradient) continue;
    at::Tensor parameter = training.parameters[static_cast<size_t>(entry.parameter)].tensor;
    if (!parameter.requires_grad()) continue;
    const at::Tensor place = at::from_blob(bytes_.data() + entry.offset, parameter.sizes(),
                                           at::dtype(parameter.scalar_type()));
    const unsigned id = parameter.register_hook([place](const at::Tensor& gradient) {
      const c10::NoGradGuard no_grad;
      at::Tensor(place).add_(on_host(gradient));
    });
    hooks_.push_back({parameter, id, entry.name, place});
  }
}

LocalGradients::~LocalGradients() {
  for (Hook& hook : hooks_) hook.parameter.remove_hook(hook.id);
}

std::string LocalGradients::lost() const {
  const c10::NoGradGuard no_grad;
  for (const Hook& hook : hooks_) {
    const at::Tensor& gradient = hook.parameter.grad();
    const at::Tensor held = gradient.defined() ? on_host(gradient) : at::zeros_like(hook.sum);
    if (!at::equal(held.is_sparse() ? held.to_dense() : held, hook.sum)) return hook.name;
  }
  return "";
}

void LocalGradients::clear() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0}); }

}  // namespace lockstep
