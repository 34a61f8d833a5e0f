#include "golden/power_sgd.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>
#include <utility>

#include "golden/replay_buckets.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

// Modified Gram-Schmidt, column by column. What is left of a column that depends on those before it
// is rounding, without a direction: it becomes zero.
void orthogonalize(const at::Tensor& matrix) {
  constexpr double kTiny = 1e-12;
  for (int64_t c = 0; c < matrix.size(1); ++c) {
    at::Tensor column = matrix.select(1, c);
    const double before = column.norm().item<double>();
    for (int64_t earlier = 0; earlier < c; ++earlier) {
      const at::Tensor other = matrix.select(1, earlier);
      column.sub_(other * (other * column).sum());
    }
    const double left = column.norm().item<double>();
    if (left == 0 || left <= kTiny * before)
      column.zero_();
    else
      column.div_(left);
  }
}

PowerSgd::Gradients as_matrices(const PowerSgd::Gradients& gradients) {
  PowerSgd::Gradients matrices;
  for (const at::Tensor& gradient : gradients)
    matrices.push_back(gradient.view({gradient.size(0), -1}));
  return matrices;
}

int64_t total_of(const PowerSgd::Gradients& matrices, int64_t dim) {
  int64_t total = 0;
  for (const at::Tensor& matrix : matrices) total += matrix.size(dim);
  return total;
}

}  // namespace

PowerSgd::PowerSgd(const Scenario& scenario, std::string algorithm)
    : rank_(scenario.comm_hook.options.integer("rank")),
      start_step_(scenario.comm_hook.options.integer("start_step")),
      error_feedback_(scenario.comm_hook.options.flag("error_feedback")),
      seed_(scenario.seed),
      algorithm_(std::move(algorithm)) {}

void PowerSgd::average(int64_t bucket, const std::vector<Gradients>& of_ranks,
                       const Gradients& average) {
  std::vector<Gradients> whole(of_ranks.size()), matrices(of_ranks.size());
  Gradients whole_average, matrix_average;
  for (size_t i = 0; i < average.size(); ++i) {
    const bool is_matrix = shrinks(average[i]);
    (is_matrix ? matrix_average : whole_average).push_back(average[i]);
    for (size_t rank = 0; rank < of_ranks.size(); ++rank)
      (is_matrix ? matrices : whole)[rank].push_back(of_ranks[rank][i]);
  }
  if (!whole_average.empty()) average_whole(whole, whole_average);
  if (matrix_average.empty()) return;
  for (Gradients& own : matrices) own = as_matrices(own);
  auto state = states_.find(bucket);
  if (state == states_.end())
    state = states_.emplace(bucket, fresh(bucket, matrices.front())).first;
  average_matrices(&state->second, matrices, as_matrices(matrix_average));
}

// The two narrow matrices would be smaller.
bool PowerSgd::shrinks(const at::Tensor& gradient) const {
  if (gradient.dim() < 2 || !gradient.is_contiguous()) return false;
  const int64_t rows = gradient.size(0);
  const int64_t columns = gradient.numel() / std::max<int64_t>(rows, 1);
  return (rows + columns) * rank_ < rows * columns;
}

PowerSgd::State PowerSgd::fresh(int64_t bucket, const Gradients& matrices) const {
  State state;
  std::mt19937_64 engine(substream_seed(seed_, "powersgd", static_cast<uint64_t>(bucket)));
  at::Tensor basis = at::empty({total_of(matrices, 1) * rank_}, at::kDouble);
  for (int64_t i = 0; i < basis.numel(); ++i)
    basis.data_ptr<double>()[i] = static_cast<double>(static_cast<int64_t>(engine())) * 0x1p-63;
  state.flat_q = basis.to(matrices.front().scalar_type());
  return state;
}

at::Tensor PowerSgd::summed(const std::vector<at::Tensor>& of_ranks) const {
  at::Tensor sum = at::empty_like(of_ranks.front());
  add_in_order(algorithm_, of_ranks, &sum);
  return sum;
}

void PowerSgd::average_whole(const std::vector<Gradients>& of_ranks,
                             const Gradients& average) const {
  std::vector<at::Tensor> flat;
  for (const Gradients& own : of_ranks) {
    Gradients rows;
    for (const at::Tensor& gradient : own) rows.push_back(gradient.reshape({-1}));
    flat.push_back(at::cat(rows));
  }
  const at::Tensor sum = summed(flat).div_(static_cast<int64_t>(of_ranks.size()));
  int64_t offset = 0;
  for (const at::Tensor& place : average) {
    at::Tensor(place).copy_(sum.narrow(0, offset, place.numel()).view(place.sizes()));
    offset += place.numel();
  }
}

std::vector<at::Tensor> PowerSgd::narrow(const at::Tensor& flat, const Gradients& matrices,
                                         int64_t dim) const {
  std::vector<at::Tensor> views;
  int64_t offset = 0;
  for (const at::Tensor& matrix : matrices) {
    const int64_t rows = matrix.size(dim);
    views.push_back(flat.narrow(0, offset * rank_, rows * rank_).view({rows, rank_}));
    offset += rows;
  }
  return views;
}

// P = (gradient + error) Q, added over the ranks and made orthogonal; Q = (gradient + error)^T P,
// averaged over the ranks. Everybody's gradient becomes P Q^T; what a rank had to send and is not
// in it is its error, and Q the next step's basis.
void PowerSgd::average_matrices(State* state, const std::vector<Gradients>& of_ranks,
                                const Gradients& average) const {
  const auto options = state->flat_q.options();
  const size_t count = average.size();
  const std::vector<at::Tensor> basis = narrow(state->flat_q, average, 1);
  for (const at::Tensor& q : basis) orthogonalize(q);
  std::vector<Gradients> sent;
  std::vector<at::Tensor> flat_p, flat_q;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    flat_p.push_back(at::empty({total_of(average, 0) * rank_}, options));
    const std::vector<at::Tensor> p = narrow(flat_p.back(), average, 0);
    Gradients& own = sent.emplace_back();
    for (size_t i = 0; i < count; ++i) {
      own.push_back(state->errors.empty() ? at::zeros_like(average[i])
                                          : state->errors[rank][i].clone());
      own[i].add_(of_ranks[rank][i]);
      at::Tensor(p[i]).copy_(at::matmul(own[i], basis[i]));
    }
  }
  const at::Tensor summed_p = summed(flat_p);
  const std::vector<at::Tensor> common_p = narrow(summed_p, average, 0);
  for (const at::Tensor& p : common_p) orthogonalize(p);
  for (const Gradients& own : sent) {
    flat_q.push_back(at::empty({total_of(average, 1) * rank_}, options));
    const std::vector<at::Tensor> q = narrow(flat_q.back(), average, 1);
    for (size_t i = 0; i < count; ++i) at::Tensor(q[i]).copy_(at::matmul(own[i].t(), common_p[i]));
  }
  state->flat_q = summed(flat_q).div_(static_cast<int64_t>(of_ranks.size()));
  const std::vector<at::Tensor> common_q = narrow(state->flat_q, average, 1);
  for (size_t i = 0; i < count; ++i)
    at::Tensor(average[i]).copy_(at::matmul(common_p[i], common_q[i].t()));
  if (!error_feedback_) return;
  state->errors = std::move(sent);
  for (Gradients& own : state->errors)
    for (size_t i = 0; i < count; ++i) own[i].sub_(average[i]);
}

}  // namespace lockstep
