#include "sim/worker/local_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace lockstep {

struct LocalGradients::Hook {
  at::Tensor parameter;
  unsigned id;
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
    std::byte* place = bytes_.data() + entry.offset;
    const auto bytes = static_cast<size_t>(entry.bytes);
    const unsigned id = parameter.register_hook([place, bytes](const at::Tensor& gradient) {
      const at::Tensor dense = gradient.contiguous();
      std::memcpy(place, dense.data_ptr(), std::min(bytes, static_cast<size_t>(dense.nbytes())));
    });
    hooks_.push_back({parameter, id});
  }
}

LocalGradients::~LocalGradients() {
  for (Hook& hook : hooks_) hook.parameter.remove_hook(hook.id);
}

void LocalGradients::clear() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0}); }

}  // namespace lockstep
