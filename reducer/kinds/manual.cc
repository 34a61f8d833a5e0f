#include "reducer/kinds/manual.h"

#include <c10/core/GradMode.h>

#include "reducer/comm/memory_order.h"

namespace lockstep {

ManualReducer::ManualReducer(const ReducerOptions& options, const NamedTensors& parameters,
                             const NamedTensors& buffers, Communicator& communicator, Probe& probe)
    : ReducerBase(options, parameters, buffers, communicator, probe),
      hooks_(trained_.tensors,
             [this](size_t place) { probe_.parameter_ready(trained_.registration[place]); }) {}

void ManualReducer::after_backward() {
  c10::NoGradGuard no_grad;
  std::vector<size_t> missing;
  for (size_t p = 0; p < trained_.tensors.size(); ++p) {
    if (!trained_.tensors[p].grad().defined()) missing.push_back(p);
  }
  if (!missing.empty()) fail_without_gradient(missing);

  std::vector<at::Tensor> summed;
  std::vector<CommWorkPtr> works;
  for (const at::Tensor& parameter : trained_.tensors) {
    const at::Tensor& gradient = parameter.grad();
    summed.push_back(gradient.is_sparse() || fills_memory(gradient) ? gradient
                                                                    : gradient.contiguous());
    works.push_back(all_reduce(summed.back()));
  }
  for (size_t p = 0; p < works.size(); ++p) {
    works[p]->wait();
    summed[p].div_(world_size_);
    at::Tensor gradient = trained_.tensors[p].grad();
    if (!gradient.is_same(summed[p])) gradient.copy_(summed[p]);
  }
}

}  // namespace lockstep
