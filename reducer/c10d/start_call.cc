#include "reducer/c10d/start_call.h"

#include <ATen/ATen.h>

#include <vector>

namespace lockstep {
namespace {

std::vector<at::Tensor> parts_of(const at::Tensor& whole, int64_t world_size) {
  std::vector<at::Tensor> parts;
  for (int64_t r = 0; r < world_size; ++r) parts.push_back(part_of(whole, r, world_size));
  return parts;
}

c10::intrusive_ptr<c10d::Work> start_move(C10dBackend& backend, const CollectiveCall& call) {
  const int64_t size = backend.getSize();
  std::vector<std::vector<at::Tensor>> wholes;
  switch (call.operation) {
    case Operation::all_gather: {
      wholes.push_back(parts_of(call.output, size));
      std::vector<at::Tensor> own{call.input.view({-1})};
      return backend.allgather(wholes, own, {});
    }
    case Operation::gather: {
      c10d::GatherOptions options;
      options.rootRank = call.root;
      if (call.output.defined()) wholes.push_back(parts_of(call.output, size));
      std::vector<at::Tensor> own{call.input.view({-1})};
      return backend.gather(wholes, own, options);
    }
    case Operation::scatter: {
      c10d::ScatterOptions options;
      options.rootRank = call.root;
      if (call.input.defined()) wholes.push_back(parts_of(call.input, size));
      std::vector<at::Tensor> own{call.output.view({-1})};
      return backend.scatter(own, wholes, options);
    }
    default:
      return backend.barrier({});
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Work> start_call(C10dBackend& backend, const CollectiveCall& call,
                                          at::Tensor& summed) {
  if (call.operation == Operation::broadcast) {
    c10d::BroadcastOptions options;
    options.rootRank = call.root;
    std::vector<at::Tensor> tensors{call.output};
    return backend.broadcast(tensors, options);
  }
  if (call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter) {
    summed = call.operation == Operation::all_reduce ? call.output : call.input.clone();
    std::vector<at::Tensor> tensors{summed};
    return backend.allreduce(tensors, {});
  }
  return start_move(backend, call);
}

}  // namespace lockstep
