#include "sim/des/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "reducer/probe.h"
#include "scenarios/faults.h"
#include "sim/des/units_of_plan.h"
#include "sim/fault/acts/schedule.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

// ATen's ScalarType (reducer/probe.h).
uint8_t scalar_type_of(const std::string& dtype) {
  return dtype == "float64" ? 7 : dtype == "bfloat16" ? 15 : 6;
}
uint8_t wire_type_of(const Scenario& scenario) {
  if (holds_parts(scenario)) return scalar_type_of(reduced_dtype(scenario));
  const std::string& hook = scenario.comm_hook.kind;
  return hook == "fp16" ? 5 : hook == "bf16" ? 15 : scalar_type_of(scenario.dtype);
}
constexpr uint8_t kInt = 3, kLong = 4;

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

// Did the run end in this pass, or in the rebuilding of buckets at its begin?
bool ends_in(const StepTrace& trace, const PassTrace& pass) {
  return trace.failure && !trace.failure->averaging && &pass == &trace.passes.back();
}
bool ends_in_rebuild(const StepTrace& trace, const PassTrace& pass) {
  return ends_in(trace, pass) && trace.failure->bucket < 0 && !trace.failure->gathering;
}
bool ended_by(const StepTrace& trace, size_t rank) {
  return trace.failure && !trace.failure->entered &&
         trace.failure->rank == static_cast<int64_t>(rank);
}
// A rank with fewer virtual shards than others has none of the first ones.
bool is_in(const PassTrace& pass, size_t rank) { return pass.forward_ns[rank] != kNever; }
const PassTrace& first_pass_in(const StepTrace& trace, size_t rank) {
  for (const PassTrace& pass : trace.passes)
    if (is_in(pass, rank)) return pass;
  return trace.passes.back();  // the run ended before
}
// After which a rank does nothing.
int64_t last_of(const StepTrace& trace, size_t rank) {
  if (!trace.failure) return kNever;
  const int64_t until = trace.failure->known_ns;
  return ended_by(trace, rank) ? std::min(until, trace.failure->at_ns) : until;
}

// Time zero of a virtual run: the clock of records never shows 0.
constexpr int64_t kOrigin = 1'000'000'000;

}  // namespace

int64_t recorded_events(const PlannedJob& planned) {
  int64_t parameters = 0;
  for (const auto& bucket : planned.settled) parameters += static_cast<int64_t>(bucket.size());
  const auto buckets = static_cast<int64_t>(planned.settled.size());
  return planned.job.ranks * planned.job.steps *
         (planned.job.passes * (parameters + 4 * buckets + 5) +
          (exchanges_parts(planned.job) ? 3 * buckets : 0) +
          (planned.job.parts ? 6 * buckets * planned.job.passes : 0) +
          (has_copies(planned.job) ? 3 * buckets * planned.job.passes : 0) + 4);
}

VirtualRecords::VirtualRecords(const RunPlan& plan, const PlannedJob& planned)
    : plan_(plan),
      scenario_(scenario_of(plan, planned)),
      moments_(std::make_shared<const std::vector<FaultMoments>>(moments_of(scenario_))),
      planned_(planned),
      c10d_(plan.scenario.reducer.kind == "c10d"),
      dtype_(scalar_type_of(plan.scenario.dtype)),
      wire_(wire_type_of(plan.scenario)),
      ranks_(static_cast<size_t>(planned.job.ranks)) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) begin(rank);
  sequence_ = c10d_ ? 5 : 3;
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

// Ranks check that they have the same model, rank 0 sends its parameters, and all compare;
// c10d::Reducer compares shapes once more in between.
void VirtualRecords::begin(size_t rank) {
  ranks_[rank].rank = static_cast<int32_t>(rank);
  ranks_[rank].world_size = static_cast<int32_t>(ranks_.size());
  append(rank, -13, EventKind::phase_begin, Phase::rendezvous);
  append(rank, -12, EventKind::phase_begin, Phase::load);
  append(rank, -11, EventKind::phase_begin, Phase::construction);
  const int64_t ranks = planned_.job.ranks;
  std::vector<uint64_t> calls = {packed(Operation::all_gather, kLong, 16 * ranks),
                                 packed(Operation::broadcast, dtype_, planned_.parameter_bytes)};
  if (c10d_) {
    calls.push_back(packed(Operation::all_gather, kLong, 8 * ranks));
    calls.push_back(packed(Operation::broadcast, kLong, 0));
  }
  calls.push_back(packed(Operation::all_gather, kLong, 48 * ranks));
  for (size_t call = 0; call < calls.size(); ++call) {
    const auto sequence = static_cast<uint32_t>(call + 1);
    const auto time_ns = 2 * static_cast<int64_t>(call) - 10;
    append(rank, time_ns, EventKind::arrival, Phase::construction, -1, calls[call], sequence);
    append(rank, time_ns + 1, EventKind::end, Phase::construction, -1, 0, sequence);
  }
}

void VirtualRecords::add(const StepTrace& trace) {
  step_ = static_cast<int32_t>(trace.step);
  uint32_t last = sequence_;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<Event>& events = ranks_[rank].events;
    const auto first = static_cast<int64_t>(events.size());
    last = add_rank(trace, rank);
    if (trace.gone_ns.empty() || trace.gone_ns[rank] == kNever) continue;
    const int64_t gone_ns = kOrigin + trace.gone_ns[rank];
    events.erase(std::remove_if(events.begin() + first, events.end(),
                                [&](const Event& event) { return event.time_ns > gone_ns; }),
                 events.end());
  }
  sequence_ = last;
}

// A clock never shows the last arrival and what comes after it as one moment.
int64_t VirtualRecords::wait_of(const PassTrace& pass, size_t rank) const {
  if (pass.arrival_ns.empty() || alone()) return pass.wait_ns[rank];
  return std::max(pass.wait_ns[rank], pass.arrival_ns.back()[rank] + 1);
}

// As the rank's own faults leave them, at the begin of what they act in.
void VirtualRecords::add_receipts(const StepTrace& trace, size_t rank) {
  const FaultSchedule schedule(moments_, static_cast<int64_t>(rank));
  for (size_t i = 0; i < scenario_.faults.size(); ++i) {
    const Fault& fault = scenario_.faults[i];
    for (const Act& act : schedule.of_kind(fault.kind, trace.step)) {
      if (act.index != i) continue;
      const auto phase = phase_of(fault);
      const PassTrace& first = first_pass_in(trace, rank);
      const int64_t time_ns = phase == Phase::load      ? trace.begin_ns[rank]
                              : phase == Phase::forward ? first.forward_ns[rank]
                                                        : first.backward_ns[rank];
      append(rank, time_ns, EventKind::receipt, Phase::backward,
             kFirstFault + static_cast<int32_t>(i),
             static_cast<uint64_t>(std::llround(act.duration_ms * 1e6)));
    }
  }
}

uint32_t VirtualRecords::add_rank(const StepTrace& trace, size_t rank) {
  const int64_t last = last_of(trace, rank);
  const auto phase = [&](int64_t time_ns, Phase which) {
    if (time_ns <= last) append(rank, time_ns, EventKind::phase_begin, which);
  };
  phase(trace.begin_ns[rank], Phase::load);
  add_receipts(trace, rank);
  uint32_t sequence = sequence_;
  for (const PassTrace& pass : trace.passes) {
    if (!is_in(pass, rank)) continue;
    phase(pass.forward_ns[rank], Phase::forward);
    if (rebuilds(planned_.job, pass.pass)) {
      add_rebuild(trace, pass, rank, sequence);
      sequence += c10d_ ? 2 : 1;
    }
    if (ends_in_rebuild(trace, pass)) return sequence;
    if (planned_.job.parts) {
      add_units(trace, pass, rank, sequence);
    } else {
      phase(pass.backward_ns[rank], Phase::backward);
      add_buckets(trace, pass, rank, sequence);
    }
    if (!alone())
      sequence += static_cast<uint32_t>(pass.arrival_ns.size() + pass.gather_arrival_ns.size() +
                                        pass.summed_arrival_ns.size());
  }
  if (trace.failure && !trace.failure->averaging) return sequence;
  const int64_t optimizer_ns =
      std::max(trace.optimizer_ns[rank], wait_of(trace.passes.back(), rank));
  phase(optimizer_ns, Phase::optimizer);
  if (!trace.average_ns.empty()) add_average(trace, rank, optimizer_ns, sequence++);
  if (trace.failure) return sequence;
  append(rank, std::max(trace.end_ns[rank], optimizer_ns), EventKind::step_end, Phase::optimizer);
  return sequence;
}

// The new buckets, of c10d::Reducer in two messages.
void VirtualRecords::add_rebuild(const StepTrace& trace, const PassTrace& pass, size_t rank,
                                 uint32_t sequence) {
  const bool failed_here = ends_in_rebuild(trace, pass);
  if (failed_here && (ended_by(trace, rank) || pass.forward_ns[rank] > trace.failure->known_ns))
    return;
  const int64_t all_ns = *std::max_element(pass.forward_ns.begin(), pass.forward_ns.end());
  const int64_t messages = c10d_ ? 2 : 1;
  int64_t arrival_ns = pass.forward_ns[rank];
  for (int64_t message = 1; message <= messages; ++message) {
    append(rank, arrival_ns, EventKind::arrival, Phase::forward, -1,
           packed(Operation::broadcast, c10d_ ? kInt : kLong, 0), ++sequence);
    if (failed_here) return;
    arrival_ns = all_ns + planned_.job.rebuild_ns * message / messages;
    append(rank, arrival_ns, EventKind::end, Phase::forward, -1, 0, sequence);
  }
}

// When ranks launched is told only where they are told apart.
int64_t VirtualRecords::launched_at(const std::vector<std::vector<int64_t>>& launched_ns,
                                    size_t call, size_t rank) const {
  return planned_.job.schedule.touched.empty() ? kNever : launched_ns[call][rank];
}

void VirtualRecords::add_call(size_t rank, const Call& call, Phase phase, int32_t subject,
                              uint64_t value, uint32_t sequence) {
  append(rank, call.arrival_ns, EventKind::arrival, phase, subject, value, sequence);
  if (call.launched_ns != kNever)
    append(rank, call.launched_ns, EventKind::launched, phase, subject, 0, sequence);
  if (call.end_ns != kNever) append(rank, call.end_ns, EventKind::end, phase, subject, 0, sequence);
}

// In the order of time: a rank's parameters, then its bucket; ends between them.
void VirtualRecords::add_buckets(const StepTrace& trace, const PassTrace& pass, size_t rank,
                                 uint32_t sequence) {
  const auto& works = buckets_of(planned_.job, pass.pass);
  const bool settled = &works == &planned_.job.settled;
  const auto& layout = settled ? planned_.settled : planned_.first_step;
  const size_t first = ranks_[rank].events.size();
  for (size_t b = 0; b < pass.arrival_ns.size(); ++b) {
    const auto bucket = static_cast<int32_t>(works[b].bucket);
    ++sequence;
    const int64_t arrival_ns = pass.arrival_ns[b][rank];
    if (arrival_ns == kNever) continue;
    for (const int64_t parameter : layout[b])
      append(rank, pass.ready_ns[b][rank], EventKind::parameter_ready, Phase::backward,
             static_cast<int32_t>(parameter));
    append(rank, arrival_ns, EventKind::bucket_ready, Phase::backward, bucket);
    if (alone()) continue;
    add_call(rank, {arrival_ns, launched_at(pass.launched_ns, b, rank), pass.done_ns[b][rank]},
             Phase::backward, bucket,
             packed(bucket_operation(planned_.job), wire_,
                    exchanged_bytes(planned_.job, works[b].bytes)),
             sequence);
  }
  const bool ended = ends_in(trace, pass) && !trace.failure->gathering;
  const bool waits =
      is_due(planned_.job, pass.pass) && !ended && wait_of(pass, rank) <= last_of(trace, rank);
  if (waits) append(rank, wait_of(pass, rank), EventKind::phase_begin, Phase::wait);
  if (!alone()) add_gathers(pass, rank, sequence);
  const auto begin = ranks_[rank].events.begin() + static_cast<int64_t>(first);
  std::stable_sort(begin, ranks_[rank].events.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  const int64_t wait_ns = waits ? kOrigin + wait_of(pass, rank) : kNever;
  for (auto event = begin; event != ranks_[rank].events.end(); ++event)
    if (event->time_ns > wait_ns) event->phase = static_cast<uint16_t>(Phase::wait);
}

// Of buckets of virtual shards: no bucket of a communicator's.
void VirtualRecords::add_gathers(const PassTrace& pass, size_t rank, uint32_t sequence) {
  const auto& works = buckets_of(planned_.job, pass.pass);
  for (size_t b = 0; b < pass.gather_arrival_ns.size(); ++b) {
    ++sequence;
    if (pass.gather_arrival_ns[b][rank] == kNever) continue;
    const auto not_before_wait = [&](int64_t time_ns) {
      return std::max(time_ns, wait_of(pass, rank));
    };
    add_call(rank,
             {not_before_wait(pass.gather_arrival_ns[b][rank]),
              not_before_wait(launched_at(pass.gather_launched_ns, b, rank)),
              not_before_wait(pass.gather_done_ns[b][rank])},
             Phase::wait, -1, packed(Operation::all_gather, wire_, works[b].bytes), sequence);
  }
}

// Gathers of units and sums of their gradients, in the order in which they were asked for.
void VirtualRecords::add_units(const StepTrace& trace, const PassTrace& pass, size_t rank,
                               uint32_t sequence) {
  const size_t first = ranks_[rank].events.size();
  const int64_t last = last_of(trace, rank);
  const bool goes_back = pass.backward_ns[rank] <= last;
  if (goes_back) append(rank, pass.backward_ns[rank], EventKind::phase_begin, Phase::backward);
  size_t gather = 0, bucket = 0, summed = 0;
  const size_t calls =
      pass.gather_place.size() + pass.arrival_ns.size() + pass.summed_arrival_ns.size();
  for (size_t place = 0; place < calls; ++place) {
    ++sequence;
    if (gather < pass.gather_place.size() && pass.gather_place[gather] == place)
      add_unit_gather(pass, gather++, rank, sequence);
    else if (summed < bucket && summed < pass.summed_arrival_ns.size())
      add_sum_between_copies(pass, summed++, rank, sequence);
    else
      add_unit_sum(pass, bucket++, rank, sequence);
  }
  const bool waits =
      is_due(planned_.job, pass.pass) && !ends_in(trace, pass) && wait_of(pass, rank) <= last;
  if (waits) append(rank, wait_of(pass, rank), EventKind::phase_begin, Phase::wait);
  const auto begin = ranks_[rank].events.begin() + static_cast<int64_t>(first);
  std::stable_sort(begin, ranks_[rank].events.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  const int64_t wait_ns = waits ? kOrigin + wait_of(pass, rank) : kNever;
  const int64_t backward_ns = goes_back ? kOrigin + pass.backward_ns[rank] : kNever;
  for (auto event = begin; event != ranks_[rank].events.end(); ++event) {
    if (event->kind == static_cast<uint16_t>(EventKind::phase_begin)) continue;
    event->phase = static_cast<uint16_t>(event->time_ns > wait_ns       ? Phase::wait
                                         : event->time_ns < backward_ns ? Phase::forward
                                                                        : Phase::backward);
  }
}

void VirtualRecords::add_unit_gather(const PassTrace& pass, size_t gather, size_t rank,
                                     uint32_t sequence) {
  const auto& units = planned_.job.parts->units;
  const size_t unit = gather < units.size() ? gather : 2 * units.size() - 1 - gather;
  if (pass.gather_arrival_ns[gather][rank] == kNever) return;
  add_call(
      rank,
      {pass.gather_arrival_ns[gather][rank], launched_at(pass.gather_launched_ns, gather, rank),
       pass.gather_done_ns[gather][rank]},
      Phase::forward, -1,
      packed(Operation::all_gather, scalar_type_of(gathered_dtype(scenario_)), units[unit].bytes),
      sequence);
}

void VirtualRecords::add_unit_sum(const PassTrace& pass, size_t bucket, size_t rank,
                                  uint32_t sequence) {
  if (pass.arrival_ns[bucket][rank] == kNever) return;
  const auto subject = static_cast<int32_t>(bucket);
  for (const int64_t parameter : planned_.settled[bucket])
    append(rank, pass.ready_ns[bucket][rank], EventKind::parameter_ready, Phase::backward,
           static_cast<int32_t>(parameter));
  append(rank, pass.arrival_ns[bucket][rank], EventKind::bucket_ready, Phase::backward, subject);
  add_call(rank,
           {pass.arrival_ns[bucket][rank], launched_at(pass.launched_ns, bucket, rank),
            pass.done_ns[bucket][rank]},
           Phase::backward, subject,
           packed(Operation::reduce_scatter, wire_, planned_.job.settled[bucket].bytes), sequence);
}

// Of a rank's part of a bucket. Groups are told as one collective.
void VirtualRecords::add_sum_between_copies(const PassTrace& pass, size_t bucket, size_t rank,
                                            uint32_t sequence) {
  if (pass.summed_arrival_ns[bucket][rank] == kNever) return;
  const int64_t bytes = part_bytes(planned_.job, planned_.job.settled[bucket].bytes);
  add_call(rank,
           {pass.summed_arrival_ns[bucket][rank],
            launched_at(pass.summed_launched_ns, bucket, rank), pass.summed_done_ns[bucket][rank]},
           Phase::backward, -1, packed(Operation::all_reduce, wire_, bytes), sequence);
}

// Of its parameters, once they are updated. Groups are told as one collective.
void VirtualRecords::add_average(const StepTrace& trace, size_t rank, int64_t optimizer_ns,
                                 uint32_t sequence) {
  ++sequence;
  if (trace.average_ns[rank] == kNever) return;
  add_call(rank,
           {std::max(trace.average_ns[rank], optimizer_ns), kNever,
            std::max(trace.averaged_ns[rank], optimizer_ns)},
           Phase::optimizer, -1, packed(Operation::all_reduce, dtype_, planned_.job.averaged_bytes),
           sequence);
}

RunOutcome VirtualRecords::take(const SimulatedRun& run) {
  RunOutcome outcome;
  outcome.plan = plan_;
  outcome.plan.scenario = scenario_;
  outcome.plan.start_step = 0;
  outcome.plan.not_applicable.clear();
  for (const Lane lane : plan_.scenario.lanes)
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
  const bool dead = run.failure->cause == EndedBy::death;
  // Who was in the collective gave up as the others did.
  const size_t gone = run.failure->rank && !run.failure->entered
                          ? static_cast<size_t>(*run.failure->rank)
                          : ranks_.size();
  const std::string timed_out = fmt::format(
      R"({{"error_kind": "timeout", "error": "timed out", "bucket": {}, "deadline_ms": {}}})",
      run.failure->bucket, run.failure->timeout_ns / 1'000'000);
  if (dead) add(gone, run.failure->exit_code, run.failure->signal, false);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == gone) continue;
    outcome->evidence[rank] =
        dead ? R"({"error_kind": "peer_lost", "error": "a peer is gone"})" : timed_out;
    append(rank, end_ns, EventKind::error, Phase::wait, 0);
    add(rank, kExitCommError, 0, false);
  }
  if (!dead && gone < ranks_.size()) add(gone, -1, SIGKILL, true);
}

}  // namespace lockstep
