#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/BFloat16.h>
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/scatter.h>
#include <gloo/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "reducer/comm/collective.h"
#include "reducer/comm/pending_work.h"
#include "reducer/gloo/gloo_context.h"
#include "scenarios/base/error.h"

namespace lockstep {

namespace {

// Runs collectives on a connected Gloo context, blocking. One thread.
class GlooCollectives {
 public:
  // algorithm: ring | bcube (gloo::allreduce), halving_doubling | ring_chunked (the older classes).
  GlooCollectives(std::shared_ptr<gloo::Context> context, std::string algorithm);
  ~GlooCollectives();
  // Throws what Gloo throws, and CommError(rejected) for a dtype that it cannot add.
  void run(const CollectiveCall& call);

 private:
  void all_reduce(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  void reduce_scatter(const CollectiveCall& call, std::chrono::milliseconds timeout);
  void move(const CollectiveCall& call, std::chrono::milliseconds timeout);
  template <class T>
  void all_reduce_as(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  template <class T>
  void all_reduce_old(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  template <class T>
  std::unique_ptr<gloo::Algorithm> make_old(const at::Tensor& staging);
  void barrier(std::chrono::milliseconds timeout);

  const std::shared_ptr<gloo::Context> context_;
  const std::string algorithm_;
  uint32_t tag_ = 0;
  // One of Gloo's older algorithm objects with the memory that it was made for. A message for an
  // object that the receiver has not made yet keeps the receiver's event loop spinning, and a slow
  // peer may still write to one that is gone: so they are kept and run again, for the same sizes.
  struct Prepared {
    at::Tensor staging;
    std::unique_ptr<gloo::Algorithm> algorithm;
  };
  std::list<Prepared> prepared_;  // the last used first; alike on all ranks, as their calls are
};

// Replaces a sparse COO tensor by the coalesced sum over ranks: gathers how many entries each rank
// has, then their indices and values, and adds them in order of rank. Blocking; takes tags from
// *tag on, the same number on every rank. Throws what Gloo throws.
void all_reduce_sparse(const std::shared_ptr<gloo::Context>& context, uint32_t* tag,
                       const at::Tensor& tensor, std::chrono::milliseconds timeout) {
  const auto gather = [&](const void* own, const std::vector<int64_t>& bytes, void* all) {
    const std::vector<size_t> counts(bytes.begin(), bytes.end());
    gloo::AllgathervOptions options(context);
    options.setTag((*tag)++);
    options.setTimeout(timeout);
    // Gloo does not write to it.
    options.setInput(static_cast<uint8_t*>(const_cast<void*>(own)),
                     counts[static_cast<size_t>(context->rank)]);
    options.setOutput(static_cast<uint8_t*>(all), counts);
    gloo::allgatherv(options);
  };
  sum_sparse_tensors(tensor, context->size, gather);
}

using std::chrono::milliseconds;

constexpr size_t kPreparedSizes = 64;

uint8_t* raw_bytes_of(const at::Tensor& tensor) { return static_cast<uint8_t*>(tensor.data_ptr()); }

template <class Options>
void prepare(Options& options, uint32_t tag, milliseconds timeout) {
  options.setTag(tag);
  options.setTimeout(timeout);
}

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
  } else if (call.operation == Operation::all_to_all) {
    gloo::AlltoallOptions options(context_);
    prepare(options, tag_++, timeout);
    options.setInput(raw_bytes_of(call.input), part_bytes);
    options.setOutput(raw_bytes_of(call.output), part_bytes);
    gloo::alltoall(options);
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

// Gloo ends an operation itself at its deadline, wait by wait; what it lets slip ends a little
// later, by force.
constexpr std::chrono::milliseconds kSlack{50};

bool is_old_style(const std::string& algorithm) {
  return algorithm == "halving_doubling" || algorithm == "ring_chunked";
}

class GlooCommunicator : public QueuedCommunicator {
 public:
  GlooCommunicator(const CommOptions& options, std::shared_ptr<Store> store, Deadline deadline)
      : QueuedCommunicator(options.rank, options.world_size),
        options_(options),
        slack_(is_old_style(options.algorithm) ? std::chrono::milliseconds(0) : kSlack),
        store_(std::move(store)) {
    if (options.world_size == 1) return;
    context_ = connect_gloo(options, store_, deadline);
    publish_addresses(*context_, *store_, options_.prefix);
    collectives_ = std::make_unique<GlooCollectives>(context_, options.algorithm);
    thread_ = std::make_unique<CommThread>();
  }

  ~GlooCommunicator() override {
    if (context_ != nullptr && !said_closed_) close_without_waiting(*store_, options_.prefix);
    shut_down();
  }

  void close(Deadline deadline) noexcept override {
    if (std::exchange(said_closed_, true)) return;
    if (context_ != nullptr) {
      // After a failure nobody waits; before one, what is queued is let through first.
      if (!failed_ && !drained(*thread_, deadline)) failed_ = true;
      if (!failed_) {
        wait_until_all_close(*store_, options_.prefix, world_size(), deadline);
      } else {
        close_without_waiting(*store_, options_.prefix);
      }
    }
    shut_down();
  }

 protected:
  std::exception_ptr attempt(const CollectiveCall& call, const std::string& what) override {
    auto aborted = std::make_shared<std::atomic<bool>>(false);
    const Deadline forced = call.deadline == kNoDeadline ? kNoDeadline : call.deadline + slack_;
    const auto id = timer_.at(forced, [this, aborted] {
      *aborted = true;
      abort_gloo(*context_);
    });
    std::exception_ptr error;
    try {
      collectives_->run(call);
    } catch (const CommError& refused) {
      error = comm_error(what, refused);
    } catch (const std::exception& caught) {
      error = std::make_exception_ptr(
          naming_peer(gloo_error(what, caught, *aborted), *context_, *store_, options_));
    }
    timer_.cancel(id);
    return error;
  }

 private:
  // Whatever is still queued ends as closed; what is under way is cut short.
  void shut_down() noexcept {
    said_closed_ = failed_ = true;
    if (context_ == nullptr) return;
    if (outstanding_ > 0) abort_gloo(*context_);
    thread_.reset();
    timer_.stop();
    collectives_.reset();
    context_.reset();
  }

  const CommOptions options_;
  const std::chrono::milliseconds slack_;
  const std::shared_ptr<Store> store_;
  bool said_closed_ = false;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<GlooCollectives> collectives_;
  DeadlineTimer timer_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     Deadline deadline) {
  LOCKSTEP_CHECK(options.algorithm == "ring" || options.algorithm == "bcube" ||
                     is_old_style(options.algorithm),
                 "Gloo does not have the algorithm " + options.algorithm);
  return std::make_unique<GlooCommunicator>(options, std::move(store), deadline);
}

}  // namespace lockstep
