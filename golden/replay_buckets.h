#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>
#include <vector>

#include "golden/power_sgd.h"
#include "golden/replay_rule.h"
#include "scenarios/base/named_tensor.h"

namespace lockstep {

// Adds tensors of one size and floating dtype in the order of `algorithm` (reduction_order.h).
void add_in_order(const std::string& algorithm, const std::vector<at::Tensor>& given,
                  at::Tensor* sum);

// The buckets of a ReplayRule: which gradients are added together, where each lies, in which dtype
// and order they are added. Written a second time, for clarity. Parameters that are not trained
// have no place. One thread.
class ReplayBuckets {
 public:
  ReplayBuckets(const ReplayRule& rule, const NamedTensors& parameters, int64_t ranks);

  // From now on gradients are not divided, and averaged by this; null: by the rule alone.
  void compress_with(PowerSgd* compression) { compression_ = compression; }
  // What gradients are divided by from now on; at first by `ranks`.
  void divide_by(int64_t divisor) { divisor_ = divisor; }

  void lay_out_first();
  // Greedy, in the order in which gradients became ready; those that did not follow.
  void lay_out_again(std::vector<size_t> ready_order);

  // Takes grad() of all parameters as rank `rank`'s; absent: zeros. later: of each parameter,
  // whether the rule's division_later holds for it, not division_first_step.
  void take(int64_t rank, const std::vector<bool>& later);
  // Adds all ranks' gradients in the rule's order.
  void sum();
  // The sum, in the shape of the parameter and its dtype; sparse where gradients are.
  at::Tensor result(size_t parameter) const;
  // A sparse gradient, or one that is averaged by hand: no bucket shares it.
  bool stands_alone(size_t parameter) const;

 private:
  // What may share a bucket: gradients of one dtype, on one device, in one of the wrapped modules.
  using Key = std::tuple<at::ScalarType, int64_t, size_t>;
  struct Bucket {
    std::vector<size_t> parameters;
    int64_t index = 0;                // among those of its module, as reducers launch them
    bool by_hand = false;             // an ignored parameter alone: the sum, then / W
    std::vector<at::Tensor> of_rank;  // flat
    at::Tensor sum;
    at::Tensor rows;  // of a sparse gradient: bool, those that any rank has; otherwise undefined
  };
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;  // elements
  };

  std::vector<size_t> trained() const;
  Key key_of(size_t parameter) const;
  bool is_ignored(size_t parameter) const;
  std::vector<std::vector<size_t>> one_per_key() const;
  std::vector<std::vector<size_t>> greedy(const std::vector<size_t>& order) const;
  void lay_out(const std::vector<std::vector<size_t>>& buckets);
  void number();
  at::Tensor place_in(const at::Tensor& flat, size_t parameter) const;
  at::Tensor shaped_in(const at::Tensor& flat, size_t parameter) const;
  at::Tensor divided(const at::Tensor& gradient, const std::string& division) const;
  void take_sparse(int64_t rank, Bucket& bucket);
  void sum_sparse(Bucket& bucket);
  bool is_compressed(const Bucket& bucket) const;
  void compress(Bucket& bucket);

  const ReplayRule rule_;
  const NamedTensors parameters_;
  const int64_t ranks_;
  int64_t divisor_;
  PowerSgd* compression_ = nullptr;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
};

}  // namespace lockstep
