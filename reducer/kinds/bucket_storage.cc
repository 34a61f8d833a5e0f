#include "reducer/kinds/bucket_storage.h"

#include <ATen/ATen.h>

namespace lockstep {

BucketStorage::BucketStorage(const BucketLayout& layout, const std::vector<at::Tensor>& parameters,
                             const std::vector<bool>& sparse, Communicator& communicator,
                             int64_t multiple)
    : views_(parameters.size()), bucket_of_(parameters.size()) {
  for (size_t b = 0; b < layout.size(); ++b) {
    const auto only = static_cast<size_t>(layout[b].front());
    if (sparse[only]) {
      flat_.emplace_back();
      bucket_of_[only] = b;
      continue;
    }
    int64_t elements = 0;
    for (int64_t p : layout[b]) elements += parameters[static_cast<size_t>(p)].numel();
    elements = (elements + multiple - 1) / multiple * multiple;
    const at::Tensor& first = parameters[only];
    // What a communicator hands out is the host's.
    flat_.push_back(first.device().is_cpu()
                        ? communicator.allocate(elements, first.scalar_type())
                        : at::zeros({elements}, first.options().requires_grad(false)));
    int64_t offset = 0;
    for (int64_t p : layout[b]) {
      const at::Tensor& parameter = parameters[static_cast<size_t>(p)];
      // Gradients have their parameter's strides where those are dense.
      views_[static_cast<size_t>(p)] =
          parameter.is_non_overlapping_and_dense()
              ? flat_[b].as_strided(parameter.sizes(), parameter.strides(), offset)
              : flat_[b].narrow(0, offset, parameter.numel()).view(parameter.sizes());
      bucket_of_[static_cast<size_t>(p)] = b;
      offset += parameter.numel();
    }
  }
}

std::vector<at::Tensor> BucketStorage::views_in(const std::vector<int64_t>& parameters) const {
  std::vector<at::Tensor> views;
  for (int64_t p : parameters) views.push_back(views_[static_cast<size_t>(p)]);
  return views;
}

}  // namespace lockstep
