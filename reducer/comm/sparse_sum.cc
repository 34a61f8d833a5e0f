#include "reducer/comm/sparse_sum.h"

#include <ATen/TensorOperators.h>

namespace lockstep {

void put_sparse_sum(const std::vector<at::Tensor>& of_rank, at::Tensor out) {
  at::Tensor sum = of_rank.front();
  for (size_t rank = 1; rank < of_rank.size(); ++rank) sum = sum + of_rank[rank];
  out.copy_(sum.coalesce());
}

}  // namespace lockstep
