#include "reducer/comm/memory_order.h"

#include "scenarios/base/check.h"

namespace lockstep {

at::Tensor in_memory_order(const at::Tensor& tensor) {
  LOCKSTEP_CHECK(fills_memory(tensor), "a tensor with gaps in memory has no such view");
  return tensor.is_contiguous() ? tensor.view({-1}) : tensor.as_strided({tensor.numel()}, {1});
}

}  // namespace lockstep
