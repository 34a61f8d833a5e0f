#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "scenarios/base/named_tensor.h"

namespace lockstep {

// DataParallel's way, as torch::nn::parallel::data_parallel does it: one process, one model on the
// first device, and in every forward
//   the batch is cut into one chunk for each replica (the first ones take what is left over),
//   weights and buffers are copied to all replicas,
//   every replica computes its chunk on a thread of its own,
//   the outputs are gathered, in the order of the replicas.
// The loss is over all of them. Its backward leaves in the model's grad() the sum over replicas,
// one after the other. Buffers become what replica 0 made of them. Devices are fake: all
// memory is the CPU's.
class DataParallel {
 public:
  struct Replica {
    std::function<at::Tensor(const at::Tensor&)> forward;
    NamedTensors parameters;  // of the same names, shapes and order as the model's
    NamedTensors buffers;
  };
  // Of the model on the first device.
  DataParallel(NamedTensors parameters, NamedTensors buffers, std::vector<Replica> replicas);

  // Blocks until all replicas are done; throws what the first of them threw. One thread at a time.
  at::Tensor forward(const at::Tensor& input);

 private:
  void replicate();

  const NamedTensors parameters_;
  const NamedTensors buffers_;
  const std::vector<Replica> replicas_;
};

}  // namespace lockstep
