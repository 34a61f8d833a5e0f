#include <algorithm>
#include <atomic>

#include "reducer/comm/collective.h"
#include "reducer/communicator.h"
#include "reducer/probe.h"
#include "scenarios/base/error.h"

namespace lockstep {

const char* to_word(CommFailure failure) {
  static constexpr const char* kWords[] = {"timeout", "peer_lost", "rejected", "closed"};
  LOCKSTEP_CHECK(failure <= CommFailure::closed, "unknown CommFailure");
  return kWords[static_cast<size_t>(failure)];
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

class Recording : public CommDecorator {
 public:
  Recording(Communicator& inner, Probe& probe) : CommDecorator(inner), probe_(probe) {}

 private:
  CommWorkPtr submit(CollectiveCall call, int64_t bucket) override {
    const uint32_t sequence = ++sequence_;
    const at::Tensor& own = own_tensor(call);
    const auto dtype = own.defined() ? static_cast<uint8_t>(own.scalar_type()) : uint8_t{0};
    probe_.arrival(sequence, call.operation, bucket, collective_bytes(call, world_size()), dtype);
    const CallPlace place(sequence, bucket, call.deadline);
    CommWorkPtr work;
    try {
      work = forward(inner(), call);
    } catch (const CommError& error) {
      throw place.placed(error);
    }
    work->on_done([&probe = probe_, sequence, bucket](const std::exception_ptr& error) {
      if (!error) probe.end(sequence, bucket);
    });
    return std::make_shared<PlacedWork>(std::move(work), place);
  }

  Probe& probe_;
  std::atomic<uint32_t> sequence_{0};
};

}  // namespace

std::unique_ptr<Communicator> make_recording(Communicator& inner, Probe& probe) {
  return std::make_unique<Recording>(inner, probe);
}

}  // namespace lockstep
