#include "reducer/gloo/gloo_collectives.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/BFloat16.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/scatter.h>
#include <gloo/types.h>

#include <algorithm>
#include <limits>

#include "reducer/gloo/gloo_sparse.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr size_t kPreparedSizes = 64;

uint8_t* raw_bytes_of(const at::Tensor& tensor) { return static_cast<uint8_t*>(tensor.data_ptr()); }

template <class Options>
void prepare(Options& options, uint32_t tag, milliseconds timeout) {
  options.setTag(tag);
  options.setTimeout(timeout);
}

}  // namespace

GlooCollectives::GlooCollectives(std::shared_ptr<gloo::Context> context, std::string algorithm)
    : context_(std::move(context)), algorithm_(std::move(algorithm)) {}

// Connections first: their threads may be writing into an algorithm's memory.
GlooCollectives::~GlooCollectives() {
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
    // They are as good as closed.
  }
}

template <class T>
std::unique_ptr<gloo::Algorithm> GlooCollectives::make_old(const at::Tensor& staging) {
  const std::vector<T*> pointers{static_cast<T*>(staging.data_ptr())};
  const int count = static_cast<int>(staging.numel());
  if (algorithm_ == "halving_doubling") {
    return std::make_unique<gloo::AllreduceHalvingDoubling<T>>(context_, pointers, count);
  }
  return std::make_unique<gloo::AllreduceRingChunked<T>>(context_, pointers, count);
}

template <class T>
void GlooCollectives::all_reduce_old(const at::Tensor& tensor, milliseconds timeout) {
  if (tensor.nbytes() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    throw CommError(CommFailure::rejected, "Gloo's " + algorithm_ + " counts bytes in an int");
  }
  const auto fits = [&](const Prepared& p) {
    return p.staging.numel() == tensor.numel() && p.staging.scalar_type() == tensor.scalar_type();
  };
  const auto found = std::find_if(prepared_.begin(), prepared_.end(), fits);
  if (found != prepared_.end()) {
    prepared_.splice(prepared_.begin(), prepared_, found);
  } else {
    if (prepared_.size() == kPreparedSizes) prepared_.pop_back();
    const at::Tensor staging = at::empty({tensor.numel()}, tensor.options());
    prepared_.push_front({staging, make_old<T>(staging)});
    barrier(timeout);  // every rank has its buffers before anybody writes to them
  }
  const at::Tensor& staging = prepared_.front().staging;
  staging.copy_(tensor.view({-1}));
  prepared_.front().algorithm->run();
  tensor.view({-1}).copy_(staging);
}

template <class T>
void GlooCollectives::all_reduce_as(const at::Tensor& tensor, milliseconds timeout) {
  const bool ring = algorithm_ == "ring";
  if (!ring && algorithm_ != "bcube") return all_reduce_old<T>(tensor, timeout);
  gloo::AllreduceOptions options(context_);
  prepare(options, tag_++, timeout);
  options.setAlgorithm(ring ? gloo::AllreduceOptions::Algorithm::RING
                            : gloo::AllreduceOptions::Algorithm::BCUBE);
  options.setOutput(static_cast<T*>(tensor.data_ptr()), static_cast<size_t>(tensor.numel()));
  options.setReduceFunction([](void* out, const void* a, const void* b, size_t count) {
    gloo::sum<T>(out, a, b, count);
  });
  gloo::allreduce(options);
}

void GlooCollectives::all_reduce(const at::Tensor& tensor, milliseconds timeout) {
  if (tensor.is_sparse()) return all_reduce_sparse(context_, &tag_, tensor, timeout);
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return all_reduce_as<float>(tensor, timeout);
    case at::kDouble:
      return all_reduce_as<double>(tensor, timeout);
    case at::kInt:
      return all_reduce_as<int32_t>(tensor, timeout);
    case at::kLong:
      return all_reduce_as<int64_t>(tensor, timeout);
    case at::kByte:
      return all_reduce_as<uint8_t>(tensor, timeout);
    case at::kChar:
      return all_reduce_as<int8_t>(tensor, timeout);
    case at::kHalf:
      return all_reduce_as<gloo::float16>(tensor, timeout);
    case at::kBFloat16:
      return all_reduce_as<c10::BFloat16>(tensor, timeout);
    default:
      throw CommError(CommFailure::rejected,
                      std::string("Gloo cannot add ") + c10::toString(tensor.scalar_type()));
  }
}

// Gloo's own reduce_scatter is an old-style one for powers of two: the whole sum, then the part,
// gives the same bits as all_reduce on every communicator.
void GlooCollectives::reduce_scatter(const CollectiveCall& call, milliseconds timeout) {
  const at::Tensor whole = call.input.clone();
  all_reduce(whole, timeout);
  call.output.view({-1}).copy_(part_of(whole, context_->rank, context_->size));
}

void GlooCollectives::move(const CollectiveCall& call, milliseconds timeout) {
  const size_t part_bytes = own_tensor(call).nbytes();
  const auto size = static_cast<size_t>(context_->size);
  if (call.operation == Operation::broadcast) {
    gloo::BroadcastOptions options(context_);
    prepare(options, tag_++, timeout);
    options.setRoot(static_cast<int>(call.root));
    options.setOutput(raw_bytes_of(call.output), part_bytes);
    gloo::broadcast(options);
  } else if (call.operation == Operation::all_gather) {
    gloo::AllgatherOptions options(context_);
    prepare(options, tag_++, timeout);
    options.setInput(raw_bytes_of(call.input), part_bytes);
    options.setOutput(raw_bytes_of(call.output), part_bytes * size);
    gloo::allgather(options);
  } else if (call.operation == Operation::gather) {
    gloo::GatherOptions options(context_);
    prepare(options, tag_++, timeout);
    options.setRoot(static_cast<int>(call.root));
    options.setInput(raw_bytes_of(call.input), part_bytes);
    if (call.output.defined()) options.setOutput(raw_bytes_of(call.output), part_bytes * size);
    gloo::gather(options);
  } else {
    gloo::ScatterOptions options(context_);
    prepare(options, tag_++, timeout);
    options.setRoot(static_cast<int>(call.root));
    options.setOutput(raw_bytes_of(call.output), part_bytes);
    if (call.input.defined()) {
      std::vector<uint8_t*> parts;
      for (size_t r = 0; r < size; ++r) parts.push_back(raw_bytes_of(call.input) + r * part_bytes);
      options.setInputs(parts, part_bytes);
    }
    gloo::scatter(options);
  }
}

void GlooCollectives::barrier(milliseconds timeout) {
  gloo::BarrierOptions options(context_);
  prepare(options, tag_++, timeout);
  gloo::barrier(options);
}

void GlooCollectives::run(const CollectiveCall& call) {
  // 0 would mean "for ever" to Gloo.
  const milliseconds timeout = std::max(time_left(call.deadline), milliseconds(1));
  if (call.operation == Operation::barrier) return barrier(timeout);
  if (own_tensor(call).numel() == 0) return;
  c10::NoGradGuard no_grad;
  if (call.operation == Operation::all_reduce) return all_reduce(call.output, timeout);
  if (call.operation == Operation::reduce_scatter) return reduce_scatter(call, timeout);
  move(call, timeout);
}

}  // namespace lockstep
