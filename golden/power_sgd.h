#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// What comm hook `powersgd` makes of the gradients of all ranks, without any rank: the arithmetic
// of reducer/hooks, written a second time. One thread.
class PowerSgd {
 public:
  // One of a scenario with that hook; `algorithm`: in which order ranks are added
  // (reduction_order.h).
  PowerSgd(const Scenario& scenario, std::string algorithm);

  // Does it compress in this synchronized pass, from 1 since ranks built their reducers? If not,
  // gradients are averaged as they are.
  bool compresses(int64_t pass) const { return pass >= start_step_; }
  // Buckets were laid out anew: their errors and bases are gone.
  void forget() { states_.clear(); }

  // A tensor for each parameter of a bucket, in its shape and order.
  using Gradients = std::vector<at::Tensor>;
  // bucket: as reducers number them. Writes into the tensors of `average`.
  void average(int64_t bucket, const std::vector<Gradients>& of_ranks, const Gradients& average);

 private:
  // Of one bucket. Narrow matrices lie one behind the other in a flat tensor, as they travel:
  // where an element lies decides in which order a ring adds it.
  struct State {
    std::vector<std::vector<at::Tensor>> errors;  // by rank and matrix
    at::Tensor flat_q;
  };

  bool shrinks(const at::Tensor& gradient) const;
  State fresh(int64_t bucket, const Gradients& matrices) const;
  at::Tensor summed(const std::vector<at::Tensor>& of_ranks) const;
  void average_whole(const std::vector<Gradients>& of_ranks, const Gradients& average) const;
  void average_matrices(State* state, const std::vector<Gradients>& of_ranks,
                        const Gradients& average) const;
  // Views of a flat tensor: a matrix of `rank_` columns for each of `matrices`, with as many rows
  // as these have in dimension `dim`.
  std::vector<at::Tensor> narrow(const at::Tensor& flat, const Gradients& matrices,
                                 int64_t dim) const;

  const int64_t rank_, start_step_;
  const bool error_feedback_;
  const uint64_t seed_;
  const std::string algorithm_;
  std::map<int64_t, State> states_;
};

}  // namespace lockstep
