#include <algorithm>
#include <atomic>

#include "reducer/comm/collective.h"
#include "reducer/communicator.h"
#include "reducer/probe.h"
#include "scenarios/base/error.h"

namespace lockstep {

const char* to_word(CommFailure failure) {
  switch (failure) {
    case CommFailure::timeout:
      return "timeout";
    case CommFailure::peer_lost:
      return "peer_lost";
    case CommFailure::rejected:
      return "rejected";
    case CommFailure::closed:
      return "closed";
  }
  LOCKSTEP_CHECK(false, "unknown CommFailure");
}

namespace {

int64_t ms_of(Clock::duration time) {
  return std::chrono::ceil<std::chrono::milliseconds>(time).count();
}

// What this rank knows of a collective that fails, and the backend does not.
class CallPlace {
 public:
  CallPlace(uint32_t sequence, int64_t bucket, Deadline deadline)
      : sequence_(sequence), bucket_(bucket), called_(Clock::now()), deadline_(deadline) {}

  CommError placed(const CommError& error) const {
    CommFacts facts = error.facts();
    facts.sequence = sequence_;
    facts.bucket = bucket_;
    facts.waited_ms = ms_of(Clock::now() - called_);
    if (deadline_ != kNoDeadline)
      facts.deadline_ms = std::max<int64_t>(0, ms_of(deadline_ - called_));
    return {error.kind(), error.what(), facts};
  }
  std::exception_ptr placed(const std::exception_ptr& error) const {
    if (!error) return error;
    try {
      std::rethrow_exception(error);
    } catch (const CommError& failure) {
      return std::make_exception_ptr(placed(failure));
    } catch (...) {
      return error;
    }
  }

 private:
  const uint32_t sequence_;
  const int64_t bucket_;
  const Deadline called_, deadline_;
};

// A collective whose errors say which one it was.
class PlacedWork : public CommWork {
 public:
  PlacedWork(CommWorkPtr inner, const CallPlace& place) : inner_(std::move(inner)), place_(place) {}
  bool is_done() const override { return inner_->is_done(); }
  void wait() override {
    try {
      inner_->wait();
    } catch (const CommError& error) {
      throw place_.placed(error);
    }
  }
  void on_done(std::function<void(std::exception_ptr)> callback) override {
    inner_->on_done([place = place_, callback = std::move(callback)](
                        const std::exception_ptr& error) { callback(place.placed(error)); });
  }

 private:
  const CommWorkPtr inner_;
  const CallPlace place_;
};

class Recording : public RecordingCommunicator {
 public:
  Recording(std::unique_ptr<Communicator> inner, Probe& probe)
      : inner_(std::move(inner)), probe_(probe) {}

  int64_t rank() const override { return inner_->rank(); }
  int64_t world_size() const override { return inner_->world_size(); }
  CommWorkPtr all_reduce(const at::Tensor& tensor, Deadline deadline) override {
    const int64_t bucket = in_backward_ ? next_bucket_++ : -1;
    return record({Operation::all_reduce, tensor, tensor, 0, deadline}, bucket);
  }
  CommWorkPtr broadcast(const at::Tensor& tensor, int64_t root, Deadline deadline) override {
    return record({Operation::broadcast, tensor, tensor, root, deadline});
  }
  CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input,
                         Deadline deadline) override {
    return record({Operation::all_gather, output, input, 0, deadline});
  }
  CommWorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                             Deadline deadline) override {
    const int64_t bucket = in_backward_ ? next_bucket_++ : -1;
    return record({Operation::reduce_scatter, output, input, 0, deadline}, bucket);
  }
  CommWorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int64_t root,
                      Deadline deadline) override {
    return record({Operation::scatter, output, input, root, deadline});
  }
  CommWorkPtr gather(const at::Tensor& output, const at::Tensor& input, int64_t root,
                     Deadline deadline) override {
    return record({Operation::gather, output, input, root, deadline});
  }
  CommWorkPtr barrier(Deadline deadline) override {
    return record({Operation::barrier, {}, {}, 0, deadline});
  }
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    return inner_->allocate(elements, dtype);
  }
  void close(Deadline deadline) noexcept override { inner_->close(deadline); }

  // Hooks run on the autograd thread, these on the caller's: atomics.
  void begin_backward() override {
    next_bucket_ = 0;
    in_backward_ = true;
  }
  void end_backward() override { in_backward_ = false; }

 private:
  CommWorkPtr record(const CollectiveCall& call, int64_t bucket = -1) {
    const uint32_t sequence = ++sequence_;
    const at::Tensor& own = own_tensor(call);
    const auto dtype = own.defined() ? static_cast<uint8_t>(own.scalar_type()) : uint8_t{0};
    probe_.arrival(sequence, call.operation, bucket, collective_bytes(call, world_size()), dtype);
    const CallPlace place(sequence, bucket, call.deadline);
    CommWorkPtr work;
    try {
      work = forward(*inner_, call);
    } catch (const CommError& error) {
      throw place.placed(error);
    }
    work->on_done([&probe = probe_, sequence, bucket](const std::exception_ptr& error) {
      if (!error) probe.end(sequence, bucket);
    });
    return std::make_shared<PlacedWork>(std::move(work), place);
  }

  const std::unique_ptr<Communicator> inner_;
  Probe& probe_;
  std::atomic<uint32_t> sequence_{0};
  std::atomic<int64_t> next_bucket_{0};
  std::atomic<bool> in_backward_{false};
};

}  // namespace

std::unique_ptr<RecordingCommunicator> make_recording(std::unique_ptr<Communicator> inner,
                                                      Probe& probe) {
  return std::make_unique<Recording>(std::move(inner), probe);
}

}  // namespace lockstep
