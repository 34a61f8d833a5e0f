#include "reducer/comm/collective.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>

#include "reducer/communicator.h"
#include "scenarios/base/error.h"

namespace lockstep {

at::Tensor in_memory_order(const at::Tensor& tensor) {
  LOCKSTEP_CHECK(fills_memory(tensor), "a tensor with gaps in memory has no such view");
  return tensor.is_contiguous() ? tensor.view({-1}) : tensor.as_strided({tensor.numel()}, {1});
}

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

bool fits(const at::Tensor& tensor, bool may_be_sparse = false) {
  if (may_be_sparse && tensor.is_sparse()) return true;
  return tensor.layout() == at::kStrided && tensor.is_contiguous();
}

// What works in place takes elements as they lie in memory.
at::Tensor in_place(const at::Tensor& tensor) {
  const bool as_it_is = tensor.is_sparse() || tensor.is_contiguous() || !fills_memory(tensor);
  return as_it_is ? tensor : in_memory_order(tensor);
}

const char* dtype_word(at::ScalarType type) {
  static constexpr std::pair<at::ScalarType, const char*> kWords[] = {
      {at::kFloat, "float32"},    {at::kDouble, "float64"}, {at::kInt, "int32"},
      {at::kLong, "int64"},       {at::kByte, "uint8"},     {at::kHalf, "float16"},
      {at::kBFloat16, "bfloat16"}};
  for (const auto& [known, word] : kWords)
    if (known == type) return word;
  return c10::toString(type);
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

const at::Tensor& own_tensor(const CollectiveCall& call) {
  const bool by_input =
      call.operation == Operation::gather || call.operation == Operation::all_gather;
  return by_input ? call.input : call.output;
}

int64_t collective_bytes(const CollectiveCall& call, int64_t world_size) {
  const at::Tensor& own = own_tensor(call);
  if (!own.defined()) return 0;
  const bool is_whole = call.operation == Operation::all_reduce ||
                        call.operation == Operation::broadcast ||
                        call.operation == Operation::all_to_all;
  // Of a sparse tensor too: as if it were dense, since ranks hold different numbers of rows.
  const auto bytes = own.numel() * static_cast<int64_t>(own.element_size());
  return bytes * (is_whole ? 1 : world_size);
}

std::string named_ranks(const std::vector<int64_t>& ranks, const RankNames& numbers) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(numbers.of(ranks[i]));
  return text;
}

size_t most_common(const std::vector<std::string>& texts, int64_t* votes) {
  size_t usual = 0;
  std::ptrdiff_t most = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::ptrdiff_t alike = std::count(texts.begin(), texts.end(), texts[i]);
    if (alike > most) usual = i;
    most = std::max(most, alike);
  }
  if (votes != nullptr) *votes = most;
  return usual;
}

std::string describe(const CollectiveCall& call) {
  std::string text = to_word(call.operation);
  const at::Tensor& own = own_tensor(call);
  if (!own.defined()) return text;
  const char* layout = own.is_sparse() ? "sparse " : "";
  return text + " of " + std::to_string(own.numel()) + " " + layout + dtype_word(own.scalar_type());
}

CommWorkPtr CollectiveCommunicator::checked(CollectiveCall call, const at::Tensor& whole,
                                            const at::Tensor& part) {
  LOCKSTEP_CHECK(part.defined() && fits(part, call.operation == Operation::all_reduce),
                 "a collective wants a dense, contiguous tensor");
  LOCKSTEP_CHECK(call.root >= 0 && call.root < size_, "root is not a rank of the group");
  if (whole.defined()) {
    LOCKSTEP_CHECK(fits(whole), "a collective wants a dense, contiguous tensor");
    LOCKSTEP_CHECK(whole.numel() == part.numel() * size_, "not one part a rank");
    LOCKSTEP_CHECK(whole.scalar_type() == part.scalar_type(), "dtypes differ");
  }
  return submit(std::move(call));
}

CommWorkPtr CollectiveCommunicator::all_reduce(const at::Tensor& given, Deadline deadline) {
  const at::Tensor tensor = in_place(given);
  return checked({Operation::all_reduce, tensor, tensor, 0, deadline}, {}, tensor);
}

CommWorkPtr CollectiveCommunicator::broadcast(const at::Tensor& given, int64_t root,
                                              Deadline deadline) {
  const at::Tensor tensor = in_place(given);
  return checked({Operation::broadcast, tensor, tensor, root, deadline}, {}, tensor);
}

CommWorkPtr CollectiveCommunicator::all_gather(const at::Tensor& output, const at::Tensor& input,
                                               Deadline deadline) {
  LOCKSTEP_CHECK(output.defined(), "all_gather without output");
  return checked({Operation::all_gather, output, input, 0, deadline}, output, input);
}

CommWorkPtr CollectiveCommunicator::reduce_scatter(const at::Tensor& output,
                                                   const at::Tensor& input, Deadline deadline) {
  LOCKSTEP_CHECK(input.defined(), "reduce_scatter without input");
  return checked({Operation::reduce_scatter, output, input, 0, deadline}, input, output);
}

CommWorkPtr CollectiveCommunicator::scatter(const at::Tensor& output, const at::Tensor& input,
                                            int64_t root, Deadline deadline) {
  LOCKSTEP_CHECK(rank_ != root || input.defined(), "scatter without input at the root");
  const at::Tensor whole = rank_ == root ? input : at::Tensor();
  return checked({Operation::scatter, output, whole, root, deadline}, whole, output);
}

CommWorkPtr CollectiveCommunicator::gather(const at::Tensor& output, const at::Tensor& input,
                                           int64_t root, Deadline deadline) {
  LOCKSTEP_CHECK(rank_ != root || output.defined(), "gather without output at the root");
  const at::Tensor whole = rank_ == root ? output : at::Tensor();
  return checked({Operation::gather, whole, input, root, deadline}, whole, input);
}

CommWorkPtr CollectiveCommunicator::all_to_all(const at::Tensor& output, const at::Tensor& input,
                                               Deadline deadline) {
  LOCKSTEP_CHECK(fits(input) && fits(output), "a collective wants a dense, contiguous tensor");
  LOCKSTEP_CHECK(input.numel() == output.numel() && input.numel() % size_ == 0,
                 "not one part a rank");
  LOCKSTEP_CHECK(input.scalar_type() == output.scalar_type(), "dtypes differ");
  return submit({Operation::all_to_all, output, input, 0, deadline});
}

CommWorkPtr CollectiveCommunicator::barrier(Deadline deadline) {
  return submit({Operation::barrier, {}, {}, 0, deadline});
}

at::Tensor CollectiveCommunicator::allocate(int64_t elements, at::ScalarType dtype) {
  return at::zeros({elements}, dtype);
}

at::Tensor CommDecorator::allocate(int64_t elements, at::ScalarType dtype) {
  return inner_.allocate(elements, dtype);
}

void CommDecorator::begin_backward() {
  inner_.begin_backward();
  next_bucket_ = 0;
  in_backward_ = true;
}

void CommDecorator::end_backward() {
  in_backward_ = false;
  inner_.end_backward();
}

CommWorkPtr CommDecorator::submit(CollectiveCall call) {
  const bool counts = in_backward_ && averages_bucket(call.operation);
  return submit(std::move(call), counts ? next_bucket_++ : -1);
}

bool is_sum(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

bool averages_bucket(Operation operation) {
  return is_sum(operation) || operation == Operation::all_to_all;
}

CommWorkPtr forward(Communicator& communicator, const CollectiveCall& call) {
  switch (call.operation) {
    case Operation::all_reduce:
      return communicator.all_reduce(call.output, call.deadline);
    case Operation::broadcast:
      return communicator.broadcast(call.output, call.root, call.deadline);
    case Operation::all_gather:
      return communicator.all_gather(call.output, call.input, call.deadline);
    case Operation::reduce_scatter:
      return communicator.reduce_scatter(call.output, call.input, call.deadline);
    case Operation::scatter:
      return communicator.scatter(call.output, call.input, call.root, call.deadline);
    case Operation::gather:
      return communicator.gather(call.output, call.input, call.root, call.deadline);
    case Operation::barrier:
      return communicator.barrier(call.deadline);
    case Operation::all_to_all:
      return communicator.all_to_all(call.output, call.input, call.deadline);
  }
  LOCKSTEP_CHECK(false, "unknown Operation");
}

void run_alone(const CollectiveCall& call) {
  const bool in_place =
      call.operation == Operation::all_reduce || call.operation == Operation::broadcast;
  if (!call.output.defined()) return;
  c10::NoGradGuard no_grad;
  if (call.output.is_sparse()) put_sparse_sum({call.output}, call.output);
  if (in_place) return;
  call.output.view({-1}).copy_(call.input.view({-1}));
}

at::Tensor part_of(const at::Tensor& whole, int64_t rank, int64_t world_size) {
  const int64_t length = whole.numel() / world_size;
  return whole.view({-1}).narrow(0, rank * length, length);
}

}  // namespace lockstep
