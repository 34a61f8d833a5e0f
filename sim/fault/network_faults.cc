#include "sim/fault/network_faults.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "reducer/comm/collective.h"
#include "reducer/comm/pending_work.h"
#include "scenarios/faults.h"
#include "sim/fault/acts/rank_faults.h"
#include "sim/fault/faulty_work.h"

namespace lockstep {
namespace {

// Numbers collectives, and the sums of a backward by their buckets.
class Counting : public FaultyCommunicator {
 public:
  using FaultyCommunicator::FaultyCommunicator;
  void begin_backward() override {
    next_bucket_ = 0;
    in_backward_ = true;
  }
  void end_backward() override { in_backward_ = false; }

 protected:
  virtual CommWorkPtr submit(CollectiveCall call, uint32_t sequence, int64_t bucket) = 0;

 private:
  CommWorkPtr submit(CollectiveCall call) final {
    const uint32_t sequence = ++sequence_;
    const bool sum =
        call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
    return submit(std::move(call), sequence, in_backward_ && sum ? next_bucket_++ : -1);
  }

  std::atomic<uint32_t> sequence_{0};
  std::atomic<int64_t> next_bucket_{0};
  std::atomic<bool> in_backward_{false};
};

class FaultyBuckets : public Counting {
 public:
  FaultyBuckets(Communicator& inner, RankFaults& faults)
      : Counting(inner.rank(), inner.world_size()), inner_(inner), faults_(faults) {}
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    return inner_.allocate(elements, dtype);
  }
  void close(Deadline deadline) noexcept override { inner_.close(deadline); }

 protected:
  CommWorkPtr submit(CollectiveCall call, uint32_t, int64_t bucket) override {
    if (bucket >= 0 && faults_.at_bucket(bucket)) return std::make_shared<SkippedWork>();
    return forward(inner_, call);
  }

 private:
  Communicator& inner_;
  RankFaults& faults_;
};

// Ends waits early.
class EarlyEnd {
 public:
  void set() {
    {
      const std::lock_guard lock(mutex_);
      set_ = true;
    }
    changed_.notify_all();
  }
  bool comes_within(double ms) {
    const auto time =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, Clock::now() + time, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

class FaultyNetwork : public Counting {
 public:
  FaultyNetwork(std::unique_ptr<Communicator> inner, RankFaults& faults, Recorder& recorder,
                OwnLink* own_link)
      : Counting(inner->rank(), inner->world_size()),
        inner_(std::move(inner)),
        faults_(faults),
        recorder_(recorder),
        own_link_(own_link),
        network_(faults.any_of_class(FaultClass::network)) {}

  ~FaultyNetwork() override { stop_->set(); }

  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    return inner_->allocate(elements, dtype);
  }
  // What is still in the queue is let through, until the deadline.
  void close(Deadline deadline) noexcept override {
    if (queue_ && !drained(*queue_, deadline)) stop_->set();
    queue_.reset();
    timer_.stop();
    inner_->close(deadline);
  }

 protected:
  CommWorkPtr submit(CollectiveCall call, uint32_t sequence, int64_t bucket) override {
    if (!network_) return forward(*inner_, call);
    if (is_cut_off(bucket)) return lose(call);
    const double delay_ms = delay_of(call);
    if (delay_ms == 0 && !queue_) {
      launched(sequence, bucket);
      return forward(*inner_, call);
    }
    return enqueue(call, sequence, bucket, delay_ms);
  }

 private:
  void launched(uint32_t sequence, int64_t bucket) {
    recorder_.append(EventKind::launched, static_cast<int32_t>(bucket), 0, sequence);
  }

  // Once cut off, for good. A fault with a phase has come by the first collective after it.
  bool is_cut_off(int64_t bucket) {
    if (cut_off_) return true;
    for (const FaultKind kind : {FaultKind::half_open, FaultKind::partition})
      for (const Act& act : faults_.acts_of(kind)) {
        const auto wanted = bucket_of(*act.fault);
        if (wanted && *wanted != bucket) continue;
        if (!act_once(act.index)) continue;
        if (!wanted) faults_.receipt(act);  // those with a bucket have one
        cut(*act.fault);
      }
    return cut_off_;
  }

  bool act_once(size_t fault) { return acted_.insert(fault).second; }

  void cut(const Fault& fault) {
    if (own_link_ == nullptr || !by_own_link(fault)) {
      cut_off_ = true;
    } else {
      part_ways(fault);
    }
  }

  void part_ways(const Fault& fault) {
    if (fault.kind != FaultKind::partition) return own_link_->lose_all();
    const std::vector<int64_t> side = fault.options.integers("ranks");
    if (std::find(side.begin(), side.end(), rank()) != side.end()) own_link_->change_side();
  }

  CommWorkPtr lose(const CollectiveCall& call) {
    auto work = std::make_shared<PendingWork>(describe(call), call.deadline);
    timer_.at(work->deadline(), [work] { give_up(*work); });
    return work;
  }

  static void give_up(PendingWork& work) {
    work.complete(comm_error(CommFailure::timeout, work.what(), "no peer has answered in time"));
  }

  // What a ring makes a rank send; of other algorithms it is about the same.
  double bytes_sent(const CollectiveCall& call) const {
    const auto ranks = static_cast<double>(world_size());
    const auto bytes = static_cast<double>(collective_bytes(call, world_size()));
    return (call.operation == Operation::all_reduce ? 2 : 1) * (ranks - 1) / ranks * bytes;
  }

  double delay_of(const CollectiveCall& call) {
    double delay_ms = 0, limit_mb_per_s = 0;
    for (const Act& act : faults_.acts_of(FaultKind::slow_link)) {
      faults_.receipt(act);
      const double bandwidth_mb_per_s = act.fault->options.number("bandwidth_mb_per_s");
      if (own_link_ != nullptr && by_own_link(*act.fault)) {
        limit_mb_per_s = bandwidth_mb_per_s;
      } else {
        delay_ms += bytes_sent(call) / bandwidth_mb_per_s * 1e-3;
      }
    }
    if (own_link_ != nullptr) own_link_->limit_mb_per_s(limit_mb_per_s);
    for (const FaultKind kind : {FaultKind::latency, FaultKind::jitter})
      for (const Act& act : faults_.acts_of(kind)) {
        faults_.receipt(act);
        delay_ms += act.duration_ms;
      }
    return delay_ms;
  }

  CommWorkPtr enqueue(const CollectiveCall& call, uint32_t sequence, int64_t bucket,
                      double delay_ms) {
    if (!queue_) queue_.emplace();
    auto work = std::make_shared<PendingWork>(describe(call), call.deadline);
    // Whatever becomes of it on its way, the rank waits no longer than it said.
    timer_.at(call.deadline, [weak = std::weak_ptr(work)] {
      if (const auto late = weak.lock()) give_up(*late);
    });
    work->on_done([stop = stop_](const std::exception_ptr& error) {
      if (error) stop->set();
    });
    queue_->post([this, call, work, sequence, bucket, delay_ms] {
      if (!stop_->comes_within(delay_ms)) return start(call, work, sequence, bucket);
      work->complete(comm_error(CommFailure::closed, work->what(), "an earlier collective failed"));
    });
    return work;
  }

  // Unless its deadline has passed on the way: then its peers wait in vain.
  void start(const CollectiveCall& call, const std::shared_ptr<PendingWork>& work,
             uint32_t sequence, int64_t bucket) {
    if (work->is_done()) return;
    launched(sequence, bucket);
    try {
      forward(*inner_, call)->on_done([work](const std::exception_ptr& error) {
        work->complete(error);
      });
    } catch (...) {
      work->complete(std::current_exception());
    }
  }

  const std::unique_ptr<Communicator> inner_;
  RankFaults& faults_;
  Recorder& recorder_;
  OwnLink* const own_link_;
  const bool network_;
  bool cut_off_ = false;
  std::set<size_t> acted_;
  // A collective has failed, or all is over: what waits in the queue goes nowhere any more.
  const std::shared_ptr<EarlyEnd> stop_ = std::make_shared<EarlyEnd>();
  DeadlineTimer timer_;
  std::optional<CommThread> queue_;
};

class SlowStore : public Store {
 public:
  SlowStore(std::shared_ptr<Store> inner, double duration_ms)
      : inner_(std::move(inner)), duration_ms_(duration_ms) {}
  void set(const std::string& key, const std::string& value) override {
    pause_for(duration_ms_);
    inner_->set(key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    pause_for(duration_ms_);
    return inner_->get(key, deadline);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    pause_for(duration_ms_);
    return inner_->add(key, amount);
  }
  bool has(const std::string& key) override {
    pause_for(duration_ms_);
    return inner_->has(key);
  }

 private:
  const std::shared_ptr<Store> inner_;
  const double duration_ms_;
};

}  // namespace

std::unique_ptr<FaultyCommunicator> make_faulty_buckets(Communicator& inner, RankFaults& faults) {
  return std::make_unique<FaultyBuckets>(inner, faults);
}

std::unique_ptr<FaultyCommunicator> make_faulty_network(std::unique_ptr<Communicator> inner,
                                                        RankFaults& faults, Recorder& recorder,
                                                        OwnLink* own_link) {
  return std::make_unique<FaultyNetwork>(std::move(inner), faults, recorder, own_link);
}

std::shared_ptr<Store> make_slow_store(std::shared_ptr<Store> inner, double duration_ms) {
  return std::make_shared<SlowStore>(std::move(inner), duration_ms);
}

}  // namespace lockstep
