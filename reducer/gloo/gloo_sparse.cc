#include "reducer/gloo/gloo_sparse.h"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/context.h>

#include <algorithm>
#include <array>
#include <vector>

#include "reducer/comm/sparse_sum.h"
#include "reducer/communicator.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

struct Group {
  const std::shared_ptr<gloo::Context>& context;
  uint32_t* tag;
  milliseconds timeout;
};

// The rows of each rank. What else messages are sized by must agree: Gloo ends the process where
// one does not fit.
std::vector<int64_t> gather_counts(const Group& group, const at::Tensor& own) {
  std::array<int64_t, 2> mine = {own._nnz(), own.sparse_dim()};
  std::vector<int64_t> all(2 * static_cast<size_t>(group.context->size));
  gloo::AllgatherOptions options(group.context);
  options.setTag((*group.tag)++);
  options.setTimeout(group.timeout);
  options.setInput(mine.data(), mine.size());
  options.setOutput(all.data(), all.size());
  gloo::allgather(options);
  std::vector<int64_t> counts;
  for (size_t i = 0; i < all.size(); i += 2) {
    counts.push_back(all[i]);
    if (all[i + 1] != all[1])
      throw CommError(CommFailure::rejected,
                      "ranks add sparse tensors of different numbers of sparse dimensions");
  }
  return counts;
}

// The rows of all ranks' `own`, rank after rank: [entries of all ranks, ...].
at::Tensor gather_rows(const Group& group, const at::Tensor& own,
                       const std::vector<int64_t>& counts) {
  std::vector<int64_t> shape = own.sizes().vec();
  size_t row_bytes = own.element_size();
  for (size_t d = 1; d < shape.size(); ++d) row_bytes *= static_cast<size_t>(shape[d]);
  shape[0] = 0;
  std::vector<size_t> bytes;
  for (int64_t count : counts) {
    shape[0] += count;
    bytes.push_back(static_cast<size_t>(count) * row_bytes);
  }
  at::Tensor all = at::empty(shape, own.options());
  gloo::AllgathervOptions options(group.context);
  options.setTag((*group.tag)++);
  options.setTimeout(group.timeout);
  options.setInput(static_cast<uint8_t*>(own.data_ptr()),
                   bytes[static_cast<size_t>(group.context->rank)]);
  options.setOutput(static_cast<uint8_t*>(all.data_ptr()), bytes);
  gloo::allgatherv(options);
  return all;
}

}  // namespace

void all_reduce_sparse(const std::shared_ptr<gloo::Context>& context, uint32_t* tag,
                       const at::Tensor& tensor, milliseconds timeout) {
  const Group group{context, tag, timeout};
  const at::Tensor own = tensor.coalesce();
  const std::vector<int64_t> counts = gather_counts(group, own);
  if (std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; })) return;
  const at::Tensor indices = gather_rows(group, own._indices().t().contiguous(), counts);
  const at::Tensor values = gather_rows(group, own._values().contiguous(), counts);
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
