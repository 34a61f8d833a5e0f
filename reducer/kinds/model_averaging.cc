#include "reducer/model_averaging.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <map>

#include "reducer/base/reducer_base.h"

namespace lockstep {
namespace {

void average(const std::vector<at::Tensor>& tensors, Communicator& communicator,
             Deadline deadline) {
  std::vector<at::Tensor> flattened;
  for (const at::Tensor& tensor : tensors) flattened.push_back(tensor.reshape({-1}));
  at::Tensor flat = at::cat(flattened);
  flat.div_(communicator.world_size());
  communicator.all_reduce(flat, deadline)->wait();
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

}  // namespace

void average_parameters(const NamedTensors& parameters, Communicator& communicator,
                        Deadline deadline) {
  const c10::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : trained(parameters).tensors)
    by_type[tensor.scalar_type()].push_back(tensor);
  for (const auto& [type, tensors] : by_type) average(tensors, communicator, deadline);
}

}  // namespace lockstep
