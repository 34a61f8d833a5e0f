#include "sim/fault/network_faults.h"

#include <algorithm>
#include <atomic>
#include <memory>
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

class FaultyBuckets : public CommDecorator {
 public:
  FaultyBuckets(Communicator& inner, RankFaults& faults) : CommDecorator(inner), faults_(faults) {}

 protected:
  CommWorkPtr submit(CollectiveCall call, int64_t bucket) override {
    if (bucket >= 0 && faults_.at_bucket(bucket)) return std::make_shared<SkippedWork>();
    return forward(inner(), call);
  }

 private:
  RankFaults& faults_;
};

class FaultyNetwork : public CommDecorator {
 public:
  FaultyNetwork(Communicator& inner, RankFaults& faults, Recorder& recorder, OwnLink* own_link)
      : CommDecorator(inner),
        faults_(faults),
        recorder_(recorder),
        own_link_(own_link),
        network_(faults.any_of_class(FaultClass::network)) {}

  ~FaultyNetwork() override { stop_->complete(); }

  // What is still in the queue is let through, until the deadline.
  void close(Deadline deadline) noexcept override {
    if (queue_ && !drained(*queue_, deadline)) stop_->complete();
    queue_.reset();
    timer_.stop();
    CommDecorator::close(deadline);
  }

 protected:
  CommWorkPtr submit(CollectiveCall call, int64_t bucket) override {
    const uint32_t sequence = ++sequence_;
    if (!network_) return forward(inner(), call);
    if (is_cut_off(bucket)) return lose(call);
    const double delay_ms = delay_of(call);
    if (delay_ms == 0 && !queue_) {
      launched(sequence, bucket);
      return forward(inner(), call);
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
      if (error) stop->complete();
    });
    queue_->post([this, call, work, sequence, bucket, delay_ms] {
      const std::chrono::duration<double, std::milli> delay(delay_ms);
      const auto time = std::chrono::duration_cast<Clock::duration>(delay);
      if (!stop_->ends_by(Clock::now() + time)) return start(call, work, sequence, bucket);
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
      forward(inner(), call)->on_done([work](const std::exception_ptr& error) {
        work->complete(error);
      });
    } catch (...) {
      work->complete(std::current_exception());
    }
  }

  RankFaults& faults_;
  Recorder& recorder_;
  std::atomic<uint32_t> sequence_{0};
  OwnLink* const own_link_;
  const bool network_;
  bool cut_off_ = false;
  std::set<size_t> acted_;
  // A collective has failed, or all is over: what waits in the queue goes nowhere any more.
  const std::shared_ptr<PendingWork> stop_ = std::make_shared<PendingWork>("stop", kNoDeadline);
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

std::unique_ptr<Communicator> make_faulty_buckets(Communicator& inner, RankFaults& faults) {
  return std::make_unique<FaultyBuckets>(inner, faults);
}

std::unique_ptr<Communicator> make_faulty_network(Communicator& inner, RankFaults& faults,
                                                  Recorder& recorder, OwnLink* own_link) {
  return std::make_unique<FaultyNetwork>(inner, faults, recorder, own_link);
}

std::shared_ptr<Store> make_slow_store(std::shared_ptr<Store> inner, double duration_ms) {
  return std::make_shared<SlowStore>(std::move(inner), duration_ms);
}

}  // namespace lockstep
