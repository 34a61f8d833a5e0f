#pragma once

#include <bit>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/launch/protocol.h"
#include "sim/record/evidence.h"

namespace lockstep {

// Hand-made outcomes: what workers would have recorded in a run of `steps` steps without a flaw.
// Tests then damage them.
class Outcome {
 public:
  explicit Outcome(int64_t world_size = 4, int64_t steps = 3,
                   std::vector<Lane> lanes = {Lane::replica, Lane::replay, Lane::float64}) {
    Scenario& s = run.plan.scenario;
    s.name = "made";
    s.seed = 123;
    s.world_size = world_size;
    s.steps = steps;
    s.lanes = std::move(lanes);
    s.reducer.kind = "bucketed";
    s.communicator.kind = "gloo";
    s.communicator.options.set("algorithm", std::string("ring"));
    s.expect[0].verdict = Verdict::pass;
    run.plan.file = "made.json";
    run.run_dir = "/runs/0001";
    run.duration_ms = 420;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      run.ranks.push_back(records(rank));
      run.evidence.emplace_back();
      run.log_tails.emplace_back();
      run.ends.push_back({"rank-" + std::to_string(rank), rank, rank, 0, 0, 0, false, false});
    }
  }

  RunResult judge() const { return judge_run(run); }
  LaneResult lane(Lane which) const {
    for (const LaneResult& lane : judge().lanes)
      if (lane.lane == which) return lane;
    return {};
  }

  // Changes or removes what rank `rank` recorded.
  template <class Change>
  void change(size_t rank, EventKind kind, int32_t subject, Change change) {
    for (Event& event : run.ranks[rank].events)
      if (static_cast<EventKind>(event.kind) == kind && event.subject == subject) change(event);
  }
  template <class Test>
  void remove(size_t rank, Test test) {
    std::erase_if(run.ranks[rank].events, test);
  }
  void remove_kind(size_t rank, EventKind kind, int32_t subject) {
    remove(rank, [&](const Event& e) {
      return static_cast<EventKind>(e.kind) == kind && e.subject == subject;
    });
  }
  void add(size_t rank, EventKind kind, int64_t step, int32_t subject, uint64_t value = 0) {
    run.ranks[rank].events.push_back(event(kind, step, subject, value));
  }
  // From `step` on rank `rank` has another chain of this state kind than the others.
  void part(size_t rank, int32_t state_kind, int64_t step) {
    change(rank, EventKind::state_hash, state_kind, [&](Event& e) {
      if (e.step >= step) e.value ^= 0xBAD;
    });
  }
  void mismatch(size_t rank, Lane lane, const MismatchEvidence& evidence) {
    add(rank, EventKind::mismatch, evidence.step, static_cast<int32_t>(lane));
    Evidence all;
    if (auto known = evidence_from_json_text(run.evidence[rank])) all = *known;
    all.mismatches.push_back(evidence);
    run.evidence[rank] = to_json_text(all);
  }
  void error(size_t rank, ErrorKind kind, const std::string& text) {
    Evidence evidence;
    evidence.error = {.kind = kind, .text = text};
    run.evidence[rank] = to_json_text(evidence);
  }
  // The rank ended in the middle of `step`.
  void stop(size_t rank, int64_t step) {
    remove(rank, [&](const Event& e) {
      return e.step > step || static_cast<EventKind>(e.kind) == EventKind::primary_done ||
             static_cast<EventKind>(e.kind) == EventKind::finished || e.step == kDouble ||
             (e.step == step && static_cast<EventKind>(e.kind) != EventKind::phase_begin &&
              static_cast<EventKind>(e.kind) != EventKind::arrival);
    });
    auto& events = run.ranks[rank].events;
    for (size_t i = 0; i < events.size(); ++i)
      if (static_cast<EventKind>(events[i].kind) == EventKind::double_run) events.resize(i);
  }

  static Event event(EventKind kind, int64_t step, int32_t subject, uint64_t value = 0,
                     uint32_t sequence = 0, Phase phase = Phase::backward) {
    return {0,
            sequence,
            static_cast<uint16_t>(kind),
            static_cast<uint16_t>(phase),
            static_cast<int32_t>(step),
            subject,
            value};
  }

  RunOutcome run;

 private:
  static constexpr int32_t kDouble = 1 << 30;

  void lane_events(std::vector<Event>* out, Lane lane, int64_t step) const {
    const auto subject = static_cast<int32_t>(lane);
    if (lane == Lane::float64)
      out->push_back(event(EventKind::distance, step, subject, std::bit_cast<uint64_t>(1e-16)));
    out->push_back(event(EventKind::compared, step, subject, static_cast<uint64_t>(step + 1) * 10));
    if (step == 1) out->push_back(event(EventKind::control, step, subject, 1));
  }

  RankRecords records(int64_t rank) const {
    RankRecords records;
    records.rank = static_cast<int32_t>(rank);
    std::vector<Event>& out = records.events;
    const int64_t steps = run.plan.scenario.steps;
    for (int64_t step = 0; step <= steps; ++step) {
      if (step > 0) {
        out.push_back(event(EventKind::phase_begin, step, -1));
        out.push_back(event(EventKind::arrival, step, 0, pack_collective(1, 6, 400),
                            static_cast<uint32_t>(step)));
        out.push_back(event(EventKind::end, step, 0, 0, static_cast<uint32_t>(step)));
        out.push_back(event(EventKind::step_end, step, -1));
      }
      for (int32_t kind : {0, 1, 2, 3})
        if (step > 0 || kind == 1 || kind == 2)
          out.push_back(
              event(EventKind::state_hash, step, kind, static_cast<uint64_t>(step * 10 + kind)));
      out.push_back(event(EventKind::collective_hash, step, -1, static_cast<uint64_t>(step)));
      for (Lane lane : {Lane::replica, Lane::replay, Lane::exact}) lane_events(&out, lane, step);
    }
    out.push_back(event(EventKind::final_hash_low, steps, -1, 0x11));
    out.push_back(event(EventKind::final_hash_high, steps, -1, 0x22));
    out.push_back(event(EventKind::primary_done, steps, -1));
    out.push_back(event(EventKind::double_run, steps, -1));
    for (int64_t step = 0; step <= steps; ++step) lane_events(&out, Lane::float64, step);
    out.push_back(event(EventKind::finished, steps, -1));
    return records;
  }
};

// Evidence of a gradient that differs, with nothing special about it.
inline MismatchEvidence gradient_evidence(Lane lane, int64_t step) {
  MismatchEvidence e;
  e.lane = lane;
  e.step = step;
  e.state_kind = StateKind::gradient;
  e.tensor = "fc2.weight";
  e.bucket = 1;
  e.element = {17, 4};
  e.run_value = 0.5;
  e.golden_value = 0.25;
  e.run_bits = "0x3f000000";
  e.golden_bits = "0x3e800000";
  e.ulp = 8388608;
  e.max_ulp = 8388608;
  e.differing = 10;
  e.numel = 100;
  e.gradients_total = 4;
  e.gradients_wrong = 4;
  return e;
}

}  // namespace lockstep
