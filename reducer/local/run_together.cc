#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "reducer/comm/sparse_sum.h"
#include "reducer/local/hub.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

std::byte* bytes_at(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

void copy_range(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

void sum(const std::vector<at::Tensor>& tensors, SumOrder order) {
  for_summable(tensors[0].scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T*> ranks;
    for (const at::Tensor& tensor : tensors) ranks.push_back(static_cast<T*>(tensor.data_ptr()));
    const auto size = static_cast<int64_t>(tensors.size());
    sum_in_place(sum_ranges(order, size, tensors[0].numel(), sizeof(T)), ranks);
  });
}

void reduce_scatter(const std::vector<CollectiveCall>& calls, SumOrder order) {
  std::vector<at::Tensor> copies;
  for (const CollectiveCall& call : calls) copies.push_back(call.input.clone());
  sum(copies, order);
  const size_t part = calls[0].output.nbytes();
  for (size_t r = 0; r < calls.size(); ++r) {
    copy_range(bytes_at(calls[r].output), bytes_at(copies[0]) + r * part, part);
  }
}

void all_reduce(const std::vector<CollectiveCall>& calls, SumOrder order) {
  std::vector<at::Tensor> tensors;
  for (const CollectiveCall& call : calls) tensors.push_back(call.output);
  if (!tensors[0].is_sparse()) return sum(tensors, order);
  std::vector<at::Tensor> coalesced;
  for (const at::Tensor& tensor : tensors) coalesced.push_back(tensor.coalesce().clone());
  for (const at::Tensor& tensor : tensors) put_sparse_sum(coalesced, tensor);
}

}  // namespace

void run_together(const std::vector<CollectiveCall>& calls, SumOrder order) {
  const auto root = static_cast<size_t>(calls[0].root);
  const bool moves =
      calls[0].operation != Operation::barrier && calls[0].operation != Operation::all_reduce;
  const size_t part = moves ? own_tensor(calls[0]).nbytes() : 0;
  const size_t ranks = calls.size();
  c10::NoGradGuard no_grad;
  switch (calls[0].operation) {
    case Operation::barrier:
      return;
    case Operation::all_reduce:
      return all_reduce(calls, order);
    case Operation::reduce_scatter:
      return reduce_scatter(calls, order);
    case Operation::broadcast:
      for (size_t r = 0; r < ranks; ++r) {
        copy_range(bytes_at(calls[r].output), bytes_at(calls[root].output), part);
      }
      return;
    case Operation::all_gather:
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t q = 0; q < ranks; ++q) {
          copy_range(bytes_at(calls[r].output) + q * part, bytes_at(calls[q].input), part);
        }
      }
      return;
    case Operation::scatter:
      for (size_t r = 0; r < ranks; ++r) {
        copy_range(bytes_at(calls[r].output), bytes_at(calls[root].input) + r * part, part);
      }
      return;
    case Operation::gather:
      for (size_t r = 0; r < ranks; ++r) {
        copy_range(bytes_at(calls[root].output) + r * part, bytes_at(calls[r].input), part);
      }
      return;
  }
  LOCKSTEP_CHECK(false, "unknown Operation");
}

}  // namespace lockstep
