// What a scenario's faults do to each rank and step, for an engine: schedule_of().
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/faults.h"
#include "sim/des/job_of_plan.h"
#include "sim/fault/acts/schedule.h"

namespace lockstep {
namespace {

constexpr int32_t kExceptionCode = 11;  // as kExitException of sim/launch

int64_t ns_of_option(double ms) { return std::llround(ms * 1e6); }

bool hangs(const Act& act) {
  return act.fault->kind == FaultKind::deadlock ||
         (act.fault->kind == FaultKind::stop && act.duration_ms == 0);
}

struct Layers {
  std::vector<BucketWork> first_step, settled;
  std::vector<std::pair<std::string, int64_t>> ready_ns;
};

using Moments = std::shared_ptr<const std::vector<FaultMoments>>;

class OfRank {
 public:
  OfRank(Moments moments, const Layers& layers, int64_t rank, int64_t step)
      : schedule_(std::move(moments), rank), layers_(layers), step_(step) {}

  RankEvents result() {
    result_.compute_factor = std::llround(schedule_.slowdown(step_) * static_cast<double>(kOne));
    for (const PhaseDelays& delays : kDelays)
      for (const Act& act : schedule_.at_phase(delays.phase, step_)) at_phase(delays, act);
    for (const BucketWork& bucket : step_ == 1 ? layers_.first_step : layers_.settled)
      for (const Act& act : schedule_.at_bucket(bucket.bucket, step_)) at_bucket(bucket, act);
    // Of one layer, and between any two that its host launches.
    const auto stalls = schedule_.of_kind(FaultKind::launch_stall, step_);
    for (const auto& [layer, ready_ns] : layers_.ready_ns) {
      std::vector<Act> acts = schedule_.at_layer(layer, step_);
      acts.insert(acts.end(), stalls.begin(), stalls.end());
      for (const Act& act : acts)
        result_.pauses.push_back({.ready_ns = ready_ns, .ns = ns_of_option(act.duration_ms)});
    }
    network();
    return result_;
  }

 private:
  // What delays a phase: of each pass, and of the first.
  struct PhaseDelays {
    Phase phase;
    int64_t RankEvents::*each;
    int64_t RankEvents::*once;
  };
  static constexpr PhaseDelays kDelays[] = {
      {Phase::load, &RankEvents::load_ns, &RankEvents::load_ns},
      {Phase::forward, &RankEvents::forward_ns, &RankEvents::once_forward_ns},
      {Phase::backward, &RankEvents::backward_ns, &RankEvents::once_backward_ns},
      {Phase::wait, &RankEvents::wait_ns, &RankEvents::once_wait_ns},
      {Phase::optimizer, &RankEvents::optimizer_ns, &RankEvents::optimizer_ns}};

  void at_phase(const PhaseDelays& delays, const Act& act) {
    if (RankEvents::End end; ends(act, &end)) {
      end.phase = delays.phase;
      result_.end = end;
    } else {
      result_.*(acts_once(*act.fault) ? delays.once : delays.each) += ns_of_option(act.duration_ms);
    }
  }

  void at_bucket(const BucketWork& bucket, const Act& act) {
    if (RankEvents::End end; ends(act, &end)) {
      end.place = RankEvents::End::Place::bucket;
      end.bucket = bucket.bucket;
      result_.end = end;
    } else {
      result_.pauses.push_back(
          {bucket.ready_ns, ns_of_option(act.duration_ms), true, acts_once(*act.fault)});
    }
  }

  // Gone for good: dead, so that its peers see it go, or hung.
  static bool ends(const Act& act, RankEvents::End* end) {
    if (hangs(act)) return true;
    const auto signal = row_of(act.fault->kind).ends_by;
    if (!signal) return false;
    end->dead = true;
    end->signal = *signal;
    if (*signal == 0)
      end->exit_code = act.fault->options.has("code")
                           ? static_cast<int32_t>(act.fault->options.integer("code"))
                           : kExceptionCode;
    return true;
  }

  void network() {
    for (const FaultKind kind : {FaultKind::latency, FaultKind::jitter})
      for (const Act& act : schedule_.of_kind(kind, step_))
        result_.queue_ns += ns_of_option(act.duration_ms);
    for (const Act& act : schedule_.of_kind(FaultKind::slow_link, step_))
      result_.queue_fs_per_byte += fs_per_byte_of(act.fault->options.number("bandwidth_mb_per_s"));
  }

  const FaultSchedule schedule_;
  const Layers& layers_;
  const int64_t step_;
  RankEvents result_;
};

// Only delays, and none after the step's last bucket: then whoever is held up less by every fault
// is nowhere later, and all leave a step together.
bool only_delays_buckets(const Fault& fault) {
  const auto phase = phase_of(fault);
  const bool after = phase == Phase::wait || phase == Phase::optimizer;
  const bool ends = row_of(fault.kind).ends_by || fault.kind == FaultKind::deadlock ||
                    (fault.kind == FaultKind::stop && !only_delays(fault));
  return !after && !ends;
}

// Of one fault on many ranks.
class Weights {
 public:
  Weights(const FaultMoments& fault, const std::vector<int64_t>& ranks) : fault_(fault) {
    for (const int64_t rank : ranks) of_.push_back(fault.of_rank(rank));
  }
  void add(const std::vector<int64_t>& ranks, int64_t step, std::vector<int64_t>* weights) const {
    for (size_t i = 0; i < ranks.size(); ++i) {
      const bool acts = fault_.acts(of_[i], ranks[i], step);
      weights->push_back(acts ? 1 + ns_of_option(fault_.duration_ms(of_[i], step)) : 0);
    }
  }

 private:
  const FaultMoments& fault_;
  std::vector<FaultMoments::OfRank> of_;
};

}  // namespace

Schedule schedule_of(const Scenario& scenario, const std::vector<BucketWork>& first_step,
                     const std::vector<BucketWork>& settled,
                     const std::vector<std::pair<std::string, int64_t>>& layer_ready_ns) {
  Schedule schedule;
  if (scenario.faults.empty()) return schedule;
  const int64_t ranks = ranks_of(scenario);
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const Fault& fault : scenario.faults)
      if (acts_on_rank(fault, rank)) {
        schedule.touched.push_back(rank);
        break;
      }
  const auto kept = std::make_shared<Scenario>(scenario);
  // They refer to the scenario, which lives as long.
  const Moments moments(new std::vector<FaultMoments>(moments_of(*kept)),
                        [kept](const std::vector<FaultMoments>* all) { delete all; });
  const auto layers = std::make_shared<Layers>(Layers{first_step, settled, layer_ready_ns});
  schedule.at = [moments, layers](int64_t rank, int64_t step) {
    return OfRank(moments, *layers, rank, step).result();
  };
  if (!std::all_of(scenario.faults.begin(), scenario.faults.end(), only_delays_buckets))
    return schedule;
  const auto ranks_touched = std::make_shared<std::vector<int64_t>>(schedule.touched);
  const auto weights = std::make_shared<std::vector<Weights>>();
  for (const FaultMoments& fault : *moments) weights->emplace_back(fault, *ranks_touched);
  schedule.weigh = [moments, weights, ranks_touched](int64_t step) {
    std::vector<int64_t> all;
    all.reserve(weights->size() * ranks_touched->size());
    for (const Weights& of_fault : *weights) of_fault.add(*ranks_touched, step, &all);
    return all;
  };
  return schedule;
}

}  // namespace lockstep
