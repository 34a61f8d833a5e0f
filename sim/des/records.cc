#include "sim/des/records.h"

#include <algorithm>
#include <cmath>
#include <csignal>

#include "reducer/probe.h"
#include "scenarios/faults.h"
#include "sim/fault/acts/schedule.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

// ATen's ScalarType (reducer/probe.h).
uint8_t scalar_type_of(const std::string& dtype) {
  return dtype == "float64" ? 7 : dtype == "bfloat16" ? 15 : 6;
}
constexpr uint8_t kByte = 0, kLong = 4;

uint64_t packed(Operation operation, uint8_t dtype, int64_t bytes) {
  return pack_collective(static_cast<uint8_t>(operation), dtype, bytes);
}

// As it is simulated, whatever the plan's own numbers are.
Scenario scenario_of(const RunPlan& plan, const PlannedJob& planned) {
  Scenario scenario = plan.scenario;
  scenario.world_size = planned.job.ranks;
  scenario.steps = planned.job.steps;
  return scenario;
}

// A clock never shows the last arrival and what comes after it as one moment.
int64_t wait_of(const StepTrace& trace, size_t rank) {
  if (trace.arrival_ns.empty()) return trace.wait_ns[rank];
  return std::max(trace.wait_ns[rank], trace.arrival_ns.back()[rank] + 1);
}

// Time zero of a virtual run: the clock of records never shows 0.
constexpr int64_t kOrigin = 1'000'000'000;

}  // namespace

int64_t recorded_events(const PlannedJob& planned) {
  int64_t parameters = 0;
  for (const auto& bucket : planned.settled) parameters += static_cast<int64_t>(bucket.size());
  const auto buckets = static_cast<int64_t>(planned.settled.size());
  return planned.job.ranks * planned.job.steps * (parameters + 4 * buckets + 6);
}

VirtualRecords::VirtualRecords(const RunPlan& plan, const PlannedJob& planned)
    : plan_(plan),
      scenario_(scenario_of(plan, planned)),
      planned_(planned),
      dtype_(scalar_type_of(plan.scenario.dtype)),
      ranks_(static_cast<size_t>(planned.job.ranks)) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) begin(rank);
  sequence_ = 3;
}

void VirtualRecords::append(size_t rank, int64_t time_ns, EventKind kind, Phase phase,
                            int32_t subject, uint64_t value, uint32_t sequence) {
  Event event{};
  event.time_ns = kOrigin + time_ns;
  event.sequence = sequence;
  event.kind = static_cast<uint16_t>(kind);
  event.phase = static_cast<uint16_t>(phase);
  event.step = step_;
  event.subject = subject;
  event.value = value;
  ranks_[rank].events.push_back(event);
}

// Ranks check that they have the same model, rank 0 sends its parameters, and all compare.
void VirtualRecords::begin(size_t rank) {
  ranks_[rank].rank = static_cast<int32_t>(rank);
  ranks_[rank].world_size = static_cast<int32_t>(ranks_.size());
  int64_t bytes = 0;
  for (const BucketWork& bucket : planned_.job.settled) bytes += bucket.bytes;
  append(rank, -10, EventKind::phase_begin, Phase::rendezvous);
  append(rank, -9, EventKind::phase_begin, Phase::load);
  append(rank, -8, EventKind::phase_begin, Phase::construction);
  const int64_t ranks = planned_.job.ranks;
  const uint64_t calls[] = {packed(Operation::all_gather, kLong, 16 * ranks),
                            packed(Operation::broadcast, dtype_, bytes),
                            packed(Operation::all_gather, kLong, 32 * ranks)};
  for (int64_t call = 0; call < 3; ++call) {
    const auto sequence = static_cast<uint32_t>(call + 1);
    append(rank, 2 * call - 7, EventKind::arrival, Phase::construction, -1, calls[call], sequence);
    append(rank, 2 * call - 6, EventKind::end, Phase::construction, -1, 0, sequence);
  }
}

void VirtualRecords::add(const StepTrace& trace) {
  step_ = static_cast<int32_t>(trace.step);
  const bool rebuilds = trace.step == 2 && planned_.job.rebuild_ns > 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) add_rank(trace, rank);
  sequence_ += static_cast<uint32_t>(trace.arrival_ns.size()) + (rebuilds ? 1 : 0);
}

// As the rank's own faults leave them, at the begin of what they act in.
void VirtualRecords::add_receipts(const StepTrace& trace, size_t rank) {
  const FaultSchedule schedule(scenario_, static_cast<int64_t>(rank));
  for (size_t i = 0; i < scenario_.faults.size(); ++i) {
    const Part& fault = scenario_.faults[i];
    for (const Act& act : schedule.of_kind(fault.kind, trace.step)) {
      if (act.index != i) continue;
      const std::string phase = phase_of(fault);
      const int64_t time_ns = phase == "load"      ? trace.begin_ns[rank]
                              : phase == "forward" ? trace.forward_ns[rank]
                                                   : trace.backward_ns[rank];
      append(rank, time_ns, EventKind::receipt, Phase::backward,
             kFirstFault + static_cast<int32_t>(i),
             static_cast<uint64_t>(std::llround(act.duration_ms * 1e6)));
    }
  }
}

void VirtualRecords::add_rank(const StepTrace& trace, size_t rank) {
  const int64_t until = trace.failure ? trace.failure->known_ns : kNever;
  const bool gone = trace.failure && trace.failure->rank == static_cast<int64_t>(rank);
  const int64_t last = gone ? std::min(until, trace.failure->at_ns) : until;
  const bool failed_here = trace.failure && trace.failure->bucket < 0;
  const auto phase = [&](int64_t time_ns, Phase which) {
    if (time_ns <= last) append(rank, time_ns, EventKind::phase_begin, which);
  };
  phase(trace.begin_ns[rank], Phase::load);
  add_receipts(trace, rank);
  phase(trace.forward_ns[rank], Phase::forward);
  if (trace.step == 2 && planned_.job.rebuild_ns > 0) {
    const uint32_t sequence = ++sequence_;
    const int64_t all = *std::max_element(trace.forward_ns.begin(), trace.forward_ns.end());
    const bool here = !failed_here || (!gone && trace.forward_ns[rank] <= until);
    if (here)
      append(rank, trace.forward_ns[rank], EventKind::arrival, Phase::forward, -1,
             packed(Operation::broadcast, kLong, 0), sequence);
    if (here && !failed_here)
      append(rank, all + planned_.job.rebuild_ns, EventKind::end, Phase::forward, -1, 0, sequence);
  }
  if (failed_here) {
    if (trace.step == 2 && planned_.job.rebuild_ns > 0) --sequence_;
    return;
  }
  phase(trace.backward_ns[rank], Phase::backward);
  add_buckets(trace, rank);
  if (trace.step == 2 && planned_.job.rebuild_ns > 0) --sequence_;
  if (trace.failure) return;
  const int64_t optimizer_ns = std::max(trace.optimizer_ns[rank], wait_of(trace, rank));
  phase(optimizer_ns, Phase::optimizer);
  append(rank, std::max(trace.end_ns[rank], optimizer_ns), EventKind::step_end, Phase::optimizer);
}

// In the order of time: a rank's parameters, then its bucket; ends between them.
void VirtualRecords::add_buckets(const StepTrace& trace, size_t rank) {
  const auto& layout = trace.step == 1 ? planned_.first_step : planned_.settled;
  const auto& works = trace.step == 1 ? planned_.job.first_step : planned_.job.settled;
  const size_t first = ranks_[rank].events.size();
  for (size_t b = 0; b < trace.arrival_ns.size(); ++b) {
    const auto bucket = static_cast<int32_t>(works[b].bucket);
    const uint32_t sequence = sequence_ + static_cast<uint32_t>(b) + 1;
    const int64_t arrival_ns = trace.arrival_ns[b][rank];
    if (arrival_ns == kNever) continue;
    for (const int64_t parameter : layout[b])
      append(rank, trace.ready_ns[b][rank], EventKind::parameter_ready, Phase::backward,
             static_cast<int32_t>(parameter));
    append(rank, arrival_ns, EventKind::bucket_ready, Phase::backward, bucket);
    append(rank, arrival_ns, EventKind::arrival, Phase::backward, bucket,
           packed(Operation::all_reduce, dtype_, works[b].bytes), sequence);
    if (!planned_.job.schedule.touched.empty() && trace.launched_ns[b][rank] != kNever)
      append(rank, trace.launched_ns[b][rank], EventKind::launched, Phase::backward, bucket, 0,
             sequence);
    if (trace.done_ns[b][rank] != kNever)
      append(rank, trace.done_ns[b][rank], EventKind::end, Phase::backward, bucket, 0, sequence);
  }
  if (!trace.failure) append(rank, wait_of(trace, rank), EventKind::phase_begin, Phase::wait);
  const auto begin = ranks_[rank].events.begin() + static_cast<int64_t>(first);
  std::stable_sort(begin, ranks_[rank].events.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  const int64_t wait_ns = trace.failure ? kNever : kOrigin + wait_of(trace, rank);
  for (auto event = begin; event != ranks_[rank].events.end(); ++event)
    if (event->time_ns > wait_ns) event->phase = static_cast<uint16_t>(Phase::wait);
}

RunOutcome VirtualRecords::take(const SimulatedRun& run) {
  RunOutcome outcome;
  outcome.plan = plan_;
  outcome.plan.scenario = scenario_;
  outcome.plan.start_step = 0;
  outcome.plan.not_applicable.clear();
  for (const std::string& lane : plan_.scenario.lanes)
    outcome.plan.not_applicable.emplace_back(lane, "virtual time computes nothing to compare");
  outcome.evidence.resize(ranks_.size());
  outcome.log_tails.resize(ranks_.size());
  outcome.began_ns = kOrigin;
  end_run(run, &outcome);
  outcome.ranks = std::move(ranks_);
  return outcome;
}

// Who died or stood still, then those who gave up because of it, as a launcher would learn it.
void VirtualRecords::end_run(const SimulatedRun& run, RunOutcome* outcome) {
  const int64_t end_ns = run.failure         ? run.failure->known_ns
                         : run.steps.empty() ? 0
                                             : run.steps.back().end_ns;
  outcome->duration_ms = end_ns / 1'000'000;
  int64_t order = 0;
  const auto add = [&](size_t rank, int exit_code, int signal, bool by_launcher) {
    ProcessEnd end;
    end.who = "rank-" + std::to_string(rank);
    end.rank = static_cast<int64_t>(rank);
    end.order = order++;
    end.time_ns = kOrigin + end_ns;
    end.exit_code = exit_code;
    end.signal = signal;
    end.by_launcher = by_launcher;
    outcome->ends.push_back(end);
  };
  if (!run.failure) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      append(rank, end_ns, EventKind::primary_done, Phase::teardown);
      append(rank, end_ns, EventKind::finished, Phase::teardown);
      add(rank, kExitDone, 0, false);
    }
    return;
  }
  outcome->failed_ns = kOrigin + end_ns;
  const auto gone = static_cast<size_t>(run.failure->rank);
  if (run.failure->dead) add(gone, run.failure->exit_code, run.failure->signal, false);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == gone) continue;
    outcome->evidence[rank] = run.failure->dead
                                  ? R"({"error_kind": "peer_lost", "error": "a peer is gone"})"
                                  : R"({"error_kind": "timeout", "error": "timed out"})";
    append(rank, end_ns, EventKind::error, Phase::wait, 0);
    add(rank, kExitCommError, 0, false);
  }
  if (!run.failure->dead) add(gone, -1, SIGKILL, true);
}

}  // namespace lockstep
