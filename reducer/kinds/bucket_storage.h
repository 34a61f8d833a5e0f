#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "reducer/bucket.h"
#include "reducer/communicator.h"

namespace lockstep {

// Contiguous memory of a layout's buckets with a view for each parameter's gradient. A parameter
// with a sparse gradient has neither.
class BucketStorage {
 public:
  BucketStorage() = default;
  // Allocated by the communicator that will sum them. Of parameters in `sparse` there is none.
  // Buckets are padded with zeros to a multiple of `multiple` elements.
  BucketStorage(const BucketLayout& layout, const std::vector<at::Tensor>& parameters,
                const std::vector<bool>& sparse, Communicator& communicator, int64_t multiple = 1);

  const at::Tensor& flat(size_t bucket) const { return flat_[bucket]; }
  const at::Tensor& view(size_t parameter) const { return views_[parameter]; }
  size_t bucket_of(size_t parameter) const { return bucket_of_[parameter]; }
  std::vector<at::Tensor> views_in(const std::vector<int64_t>& parameters) const;

 private:
  std::vector<at::Tensor> flat_;
  std::vector<at::Tensor> views_;  // by parameter
  std::vector<size_t> bucket_of_;
};

}  // namespace lockstep
