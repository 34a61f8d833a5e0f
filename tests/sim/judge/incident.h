#pragma once

#include <signal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/launch/protocol.h"
#include "sim/record/evidence.h"

namespace lockstep {

// Replaces every text of every rank's evidence.
inline void accuse_in_texts(RunOutcome* run, int64_t scapegoat) {
  const std::string text = "checkpoint: rank " + std::to_string(scapegoat) +
                           " is bad, step 2: timed out waiting for rank " +
                           std::to_string(scapegoat) + ": connection closed by peer (rank " +
                           std::to_string(scapegoat) + ")";
  for (std::string& document : run->evidence) {
    auto evidence = evidence_from_json_text(document);
    if (!evidence) continue;
    if (evidence->error.kind != ErrorKind::none) evidence->error.text = text;
    for (CheckReason& reason : evidence->check_reasons) reason.text = text;
    document = to_json_text(*evidence);
  }
}

// A made-up run of W ranks in which one does not do its part, as records and ends would show it:
// construction is a broadcast (collective 1), every step has two buckets (2 s and 2 s + 1). The
// guilty rank's records end at a place, the others' where they wait for it.
class Incident {
 public:
  static constexpr int64_t kMs = 1'000'000;
  static constexpr int64_t kBegin = 1'000'000 * kMs;
  static constexpr int64_t kTimeoutMs = 2'000;
  static constexpr int kSteps = 3;

  enum class Place { rendezvous, construction, first_step, mid_bucket, in_collective, last_step };
  static constexpr Place kPlaces[] = {Place::rendezvous, Place::construction,  Place::first_step,
                                      Place::mid_bucket, Place::in_collective, Place::last_step};

  Incident(int64_t world_size, int64_t guilty, Place place)
      : world_size_(world_size), guilty_(guilty) {
    Scenario& s = run.plan.scenario;
    s.world_size = world_size;
    s.steps = kSteps;
    s.model.kind = "none that is shipped";
    s.communicator.kind = "gloo";
    s.communicator.options.set("algorithm", std::string("ring"));
    s.expect[0].outcome = RunEnding::failed;
    s.timeouts.collective_ms = s.timeouts.construction_ms = kTimeoutMs;
    run.began_ns = kBegin - 300 * kMs;
    run.ranks.resize(world_size);
    run.evidence.resize(world_size);
    run.log_tails.resize(world_size);
    for (int64_t rank = 0; rank < world_size; ++rank) {
      run.ranks[rank].rank = static_cast<int32_t>(rank);
      run.ranks[rank].events = all_events();
    }
    cut_guilty(place);
    for (int64_t rank = 0; rank < world_size; ++rank)
      if (rank != guilty) cut_waiting(rank);
  }

  // The others time out, lose their peers because of that, or are ended, as chance has it.
  Incident& others_time_out() {
    int64_t at = last_ns() + kTimeoutMs * kMs;
    run.failed_ns = at + 5 * kMs;
    int64_t nth = 0;
    for (int64_t rank = 0; rank < world_size_; ++rank) {
      if (rank == guilty_) continue;
      const int64_t way = nth++ == 0 ? 0 : (rank + guilty_) % 3;
      if (way == 0) give_up(rank, ErrorKind::timeout, "all_reduce: timed out", at += kMs);
      if (way == 1) give_up(rank, ErrorKind::peer_lost, "all_reduce: connection closed", at += kMs);
      if (way == 2) ended(rank, at + 500 * kMs).state = asleep("futex");
      // In the rendezvous whoever waits asks the store for the address of another.
      const bool alone = run.ranks[guilty_].events.size() == 1;
      if (way == 2 && alone) run.ends.back().state->store_key = "address";
    }
    return *this;
  }
  // They lose their peer at once: those who were in no collective are ended.
  Incident& others_lose_a_peer(int64_t at_ns) {
    for (int64_t rank = 0; rank < world_size_; ++rank) {
      if (rank == guilty_) continue;
      if ((rank + guilty_) % 2 == 1)
        give_up(rank, ErrorKind::peer_lost, "all_reduce: connection closed by peer",
                at_ns + rank * kMs);
      else
        ended(rank, at_ns + 500 * kMs);
    }
    run.failed_ns = at_ns + kMs;
    return *this;
  }

  ProcessEnd& end(int64_t rank, int64_t time_ns) {
    ProcessEnd& end = run.ends.emplace_back();
    end.who = "rank-" + std::to_string(rank);
    end.rank = rank;
    end.time_ns = time_ns;
    end.order = static_cast<int64_t>(run.ends.size()) - 1;
    return end;
  }
  ProcessEnd& ended(int64_t rank, int64_t time_ns) {
    ProcessEnd& by = end(rank, time_ns);
    by.by_launcher = true;
    by.signal = SIGTERM;
    return by;
  }
  void give_up(int64_t rank, ErrorKind kind, const std::string& text, int64_t time_ns,
               int exit_code = kExitCommError, int64_t peer = -1) {
    Event error = event(EventKind::error, 0, -1, Phase::wait);
    error.time_ns = time_ns;
    run.ranks[rank].events.push_back(error);
    Evidence evidence;
    evidence.error = {.kind = kind, .text = text, .rank = rank, .peer = peer};
    run.evidence[rank] = to_json_text(evidence);
    end(rank, time_ns + 2 * kMs).exit_code = exit_code;
  }
  static ProcessState asleep(const std::string& call) { return {'S', call, "", "", 0, {}}; }
  static ProcessState stopped() { return {'T', "", "do_signal_stop", "", 0, {}}; }

  // When the guilty rank was last heard of.
  int64_t silent_ns() const {
    const auto& events = run.ranks[guilty_].events;
    return events.empty() ? kBegin : events.back().time_ns;
  }
  int64_t last_ns() const {
    int64_t last = kBegin;
    for (const RankRecords& records : run.ranks)
      if (!records.events.empty()) last = std::max(last, records.events.back().time_ns);
    return last;
  }
  Failure failure() const { return judge_run(run).failure.value_or(Failure{}); }
  // The same with sentences that accuse rank `scapegoat` of everything.
  Failure failure_with_other_texts(int64_t scapegoat) const {
    RunOutcome other = run;
    accuse_in_texts(&other, scapegoat);
    return judge_run(other).failure.value_or(Failure{});
  }

  static Event event(EventKind kind, int32_t step, int32_t subject, Phase phase,
                     uint32_t sequence = 0) {
    const bool arrival = kind == EventKind::arrival;
    return {0,
            sequence,
            static_cast<uint16_t>(kind),
            static_cast<uint16_t>(phase),
            step,
            subject,
            arrival ? pack_collective(sequence == 1 ? 2 : 1, 6, 1'000'000) : 0};
  }

  RunOutcome run;

 private:
  static std::vector<Event> all_events() {
    std::vector<Event> all;
    const auto add = [&](const Event& e) {
      all.push_back(e);
      all.back().time_ns = kBegin + static_cast<int64_t>(all.size()) * kMs;
    };
    add(event(EventKind::phase_begin, 0, -1, Phase::rendezvous));
    add(event(EventKind::phase_begin, 0, -1, Phase::construction));
    add(event(EventKind::arrival, 0, -1, Phase::construction, 1));
    add(event(EventKind::end, 0, -1, Phase::construction, 1));
    for (int32_t step = 1; step <= kSteps; ++step) {
      const auto first = static_cast<uint32_t>(2 * step);
      add(event(EventKind::phase_begin, step, -1, Phase::forward));
      add(event(EventKind::phase_begin, step, -1, Phase::backward));
      for (uint32_t bucket : {0U, 1U}) {
        add(event(EventKind::parameter_ready, step, 1 - static_cast<int32_t>(bucket),
                  Phase::backward));
        add(event(EventKind::arrival, step, static_cast<int32_t>(bucket), Phase::backward,
                  first + bucket));
      }
      add(event(EventKind::phase_begin, step, -1, Phase::wait));
      add(event(EventKind::end, step, 0, Phase::wait, first));
      add(event(EventKind::end, step, 1, Phase::wait, first + 1));
      add(event(EventKind::phase_begin, step, -1, Phase::optimizer));
      add(event(EventKind::step_end, step, -1, Phase::optimizer));
    }
    add(event(EventKind::primary_done, kSteps, -1, Phase::optimizer));
    add(event(EventKind::phase_begin, kSteps, -1, Phase::teardown));
    add(event(EventKind::finished, kSteps, -1, Phase::teardown));
    return all;
  }

  // The guilty rank's records end with the first event of this kind in this step.
  void cut_at(EventKind kind, int32_t step, int32_t subject, uint16_t phase = 0) {
    auto& events = run.ranks[guilty_].events;
    const auto last = std::find_if(events.begin(), events.end(), [&](const Event& e) {
      return e.kind == static_cast<uint16_t>(kind) && e.step == step && e.subject == subject &&
             (phase == 0 || e.phase == phase);
    });
    events.erase(last + 1, events.end());
  }

  void cut_guilty(Place place) {
    const auto phase = [](Phase p) { return static_cast<uint16_t>(p); };
    switch (place) {
      case Place::rendezvous:
        return cut_at(EventKind::phase_begin, 0, -1, phase(Phase::rendezvous));
      case Place::construction:
        return cut_at(EventKind::phase_begin, 0, -1, phase(Phase::construction));
      case Place::first_step:
        return cut_at(EventKind::phase_begin, 1, -1, phase(Phase::forward));
      case Place::mid_bucket:
        return cut_at(EventKind::arrival, 2, 0);
      case Place::in_collective:
        return cut_at(EventKind::arrival, 2, 1);
      case Place::last_step:
        return cut_at(EventKind::phase_begin, kSteps, -1, phase(Phase::backward));
    }
  }

  // A collective ends on nobody before all have entered it.
  void cut_waiting(int64_t rank) {
    auto& events = run.ranks[rank].events;
    uint32_t entered = 0;
    for (const Event& e : run.ranks[guilty_].events)
      if (e.kind == static_cast<uint16_t>(EventKind::arrival)) entered = e.sequence;
    const bool cut_inside =
        run.ranks[guilty_].events.back().kind == static_cast<uint16_t>(EventKind::arrival);
    const uint32_t stuck = cut_inside && entered % 2 == 1 ? entered : entered + 1;
    const auto waits = std::find_if(events.begin(), events.end(), [&](const Event& e) {
      return e.kind == static_cast<uint16_t>(EventKind::end) && e.sequence == stuck;
    });
    const bool alone = run.ranks[guilty_].events.size() == 1;  // nobody leaves the rendezvous
    events.erase(alone ? events.begin() + 1 : waits, events.end());
  }

  const int64_t world_size_, guilty_;
};

}  // namespace lockstep
