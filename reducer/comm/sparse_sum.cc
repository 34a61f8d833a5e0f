#include "reducer/comm/sparse_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "reducer/communicator.h"

namespace lockstep {
namespace {

// The rows of each rank. What else messages are sized by must agree: Gloo ends the process where
// one does not fit.
std::vector<int64_t> gather_counts(const at::Tensor& own, int64_t world_size,
                                   const GatherBytes& gather) {
  const std::array<int64_t, 2> mine = {own._nnz(), own.sparse_dim()};
  std::vector<std::array<int64_t, 2>> all(static_cast<size_t>(world_size));
  gather(mine.data(), std::vector<int64_t>(all.size(), sizeof mine), all.data());
  std::vector<int64_t> counts;
  for (const auto& [rows, sparse_dims] : all) {
    counts.push_back(rows);
    if (sparse_dims != mine[1])
      throw CommError(CommFailure::rejected,
                      "ranks add sparse tensors of different numbers of sparse dimensions");
  }
  return counts;
}

// The rows of all ranks' `own`, rank after rank: [entries of all ranks, ...].
at::Tensor gather_rows(const at::Tensor& own, const std::vector<int64_t>& counts,
                       const GatherBytes& gather) {
  std::vector<int64_t> shape = own.sizes().vec();
  auto row_bytes = static_cast<int64_t>(own.element_size());
  for (size_t d = 1; d < shape.size(); ++d) row_bytes *= shape[d];
  shape[0] = 0;
  std::vector<int64_t> bytes;
  for (int64_t count : counts) {
    shape[0] += count;
    bytes.push_back(count * row_bytes);
  }
  at::Tensor all = at::empty(shape, own.options());
  gather(own.data_ptr(), bytes, all.data_ptr());
  return all;
}

}  // namespace

void put_sparse_sum(const std::vector<at::Tensor>& of_rank, at::Tensor out) {
  at::Tensor sum = of_rank.front();
  for (size_t rank = 1; rank < of_rank.size(); ++rank) sum = sum + of_rank[rank];
  out.copy_(sum.coalesce());
}

void sum_sparse_tensors(const at::Tensor& tensor, int64_t world_size, const GatherBytes& gather) {
  const at::Tensor own = tensor.coalesce();
  const std::vector<int64_t> counts = gather_counts(own, world_size, gather);
  if (std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; })) return;
  const at::Tensor indices = gather_rows(own._indices().t().contiguous(), counts, gather);
  const at::Tensor values = gather_rows(own._values().contiguous(), counts, gather);
  std::vector<at::Tensor> of_rank;
  int64_t begin = 0;
  for (int64_t count : counts) {
    of_rank.push_back(at::_sparse_coo_tensor_unsafe(
        indices.narrow(0, begin, count).t().contiguous(), values.narrow(0, begin, count),
        tensor.sizes(), tensor.options()));
    begin += count;
  }
  put_sparse_sum(of_rank, tensor);
}

}  // namespace lockstep
