#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "golden/replay_rule.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// Data-parallel gradients without any rank: forward and backward over one shard after the other
// from the same weights, then the average in the order of a ReplayRule. One thread.
class Replay {
 public:
  // `training` must outlive this object and hold weights of one dtype and no buffers.
  Replay(const ReplayRule& rule, const Part& loss, const std::string& zero_grad, int64_t world_size,
         Training& training);

  // Leaves the averaged gradients of step `step` (from 1) in the parameters' grad(). shards: one
  // per rank. visit(rank), if given, is called while grad() holds that rank's local gradients.
  void average(int64_t step, const std::vector<Batch>& shards,
               const std::function<void(int64_t rank)>& visit = nullptr);

 private:
  struct Bucket {
    int64_t begin = 0;  // elements in a rank's flat storage
    int64_t count = 0;
  };

  void backward(int64_t step, int64_t rank, const Batch& shard);
  void lay_out(const std::vector<std::vector<size_t>>& buckets);
  std::vector<std::vector<size_t>> first_layout() const;
  std::vector<std::vector<size_t>> greedy(const std::vector<size_t>& order) const;
  template <class T>
  void take(int64_t rank, const std::string& division);
  template <class T>
  void put(const std::string& division);

  const ReplayRule rule_;
  const Part loss_;
  const std::string zero_grad_;
  const int64_t world_size_;
  Training& training_;
  bool wide_ = false;  // float64
  bool rebuilt_ = false;
  std::vector<size_t> ready_order_;  // of rank 0 in its first backward
  std::vector<Bucket> buckets_;
  std::vector<int64_t> places_;  // of each parameter, in elements
  int64_t elements_ = 0;
  std::vector<std::vector<std::byte>> flat_;  // of each rank, then the sums
};

}  // namespace lockstep
