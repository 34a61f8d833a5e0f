#include "sim/analysis/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/analysis/recorded_calls.h"

namespace lockstep {

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.length_ns() == 0; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (result.empty() || next.begin_ns > result.back().end_ns)
      result.push_back(next);
    else
      result.back().end_ns = std::max(result.back().end_ns, next.end_ns);
  }
  return result;
}

int64_t length_ns(const std::vector<Interval>& merged) {
  int64_t sum = 0;
  for (const Interval& interval : merged) sum += interval.length_ns();
  return sum;
}

std::vector<Interval> intersection(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> result;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval common{std::max(a[i].begin_ns, b[j].begin_ns),
                          std::min(a[i].end_ns, b[j].end_ns)};
    if (common.length_ns() > 0) result.push_back(common);
    ++(a[i].end_ns < b[j].end_ns ? i : j);
  }
  return result;
}

namespace {

// What one rank recorded of one step.
struct OwnStep {
  RankStep step;
  bool ended = false;
  bool cut = false;  // its beginning may be among the dropped events
};

using OwnSteps = std::map<int64_t, OwnStep>;
using Collectives = std::map<uint32_t, Collective>;
using GroupCollectives = std::map<std::pair<size_t, uint32_t>, Collective>;

// Reads the events of one rank in the order of time.
class RankReader {
 public:
  RankReader(size_t rank, size_t world_size, const GroupTable& groups, Collectives* collectives,
             GroupCollectives* of_groups)
      : rank_(rank),
        world_size_(world_size),
        groups_(groups),
        collectives_(*collectives),
        of_groups_(*of_groups) {}

  void read(const RankRecords& records) {
    std::vector<Event> events = records.events;
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
    for (const Event& event : events) {
      if (static_cast<EventKind>(event.kind) == EventKind::double_run) break;
      read(event);
      last_ns_ = event.time_ns;
    }
    end_phase(last_ns_);
    if (records.dropped > 0 && !steps.empty()) steps.begin()->second.cut = true;
  }

  OwnSteps steps;
  std::vector<PhaseInterval> phases;
  int64_t device_uncertainty_ns = 0;  // the largest; 0 where no device said anything

 private:
  void read(const Event& event) {
    if (event.kind == kGroupArrival || event.kind == kGroupEnd) return read_of_group(event);
    switch (static_cast<EventKind>(event.kind)) {
      case EventKind::phase_begin:
        begin_phase(event);
        break;
      case EventKind::step_end:
        end_step(event);
        break;
      case EventKind::bucket_ready:
        ready_[event.subject] = event.time_ns;
        break;
      case EventKind::arrival:
        arrive(event);
        break;
      case EventKind::device_ready:
        correct(event);
        break;
      case EventKind::launched:
        if (Passage* passage = known(event)) passage->launched_ns = event.time_ns;
        break;
      case EventKind::end:
        if (Passage* passage = known(event)) passage->end_ns = event.time_ns;
        break;
      default:
        break;
    }
  }

  bool within_step(const Event& event) const {
    if (event.step <= 0) return false;
    const auto own = steps.find(event.step);
    return own != steps.end() && !own->second.ended;
  }

  void begin_phase(const Event& event) {
    note_core_wait(event);
    end_phase(event.time_ns);
    const PhaseInterval begun{
        static_cast<Phase>(event.phase), event.step, {event.time_ns, event.time_ns}};
    phases.push_back(begun);
    open_ = true;
    if (event.step <= 0) return;
    OwnStep& own = steps[event.step];
    if (own.ended) return;  // checkpoints, after the step
    if (own.step.phases.empty()) {
      own.step.time.begin_ns = event.time_ns;
      ready_.clear();
    } else {
      own.step.phases.back().time.end_ns = event.time_ns;
    }
    own.step.phases.push_back(begun);
  }

  // What the thread has waited for a core since the last such event belongs to the phase under way.
  void note_core_wait(const Event& event) {
    const auto now_ns = std::max<int64_t>(0, static_cast<int64_t>(event.value));  // a stranger's
    const int64_t waited_ns = std::max<int64_t>(0, now_ns - core_wait_ns_);
    core_wait_ns_ = now_ns;
    if (!open_) return;
    phases.back().core_wait_ns = waited_ns;
    const auto own = steps.find(phases.back().step);
    if (own != steps.end() && !own->second.ended && !own->second.step.phases.empty())
      own->second.step.phases.back().core_wait_ns = waited_ns;
  }

  // Of the other threads nothing is known but at the ends of steps.
  void note_others_core_wait(const Event& event, RankStep* step) {
    constexpr int64_t kNsPerUs = 1000;
    if (others_core_wait_us_)  // both modulo 2^32
      step->others_core_wait_ns = int64_t{event.sequence - *others_core_wait_us_} * kNsPerUs;
    others_core_wait_us_ = event.sequence;
  }

  void end_phase(int64_t time_ns) {
    if (open_) phases.back().time.end_ns = time_ns;
    open_ = false;
  }

  void end_step(const Event& event) {
    note_core_wait(event);
    OwnStep& own = steps[event.step];
    note_others_core_wait(event, &own.step);
    own.ended = true;
    own.step.time.end_ns = event.time_ns;
    if (own.step.phases.empty())
      own.cut = true;
    else
      own.step.phases.back().time.end_ns = event.time_ns;
    end_phase(event.time_ns);
  }

  // What the first rank says of it, and whether this one says the same.
  Passage& enter(const Event& event, int64_t bucket, bool fresh, Collective* collective) {
    const PackedCollective packed = unpack_collective(event.value);
    const int64_t step = within_step(event) ? event.step : 0;
    if (fresh) {
      collective->sequence = event.sequence;
      collective->operation = packed.operation;
      collective->bucket = bucket;
      collective->bytes = packed.bytes;
      collective->step = step;
      collective->ranks.resize(world_size_);
    } else if (collective->operation != packed.operation || collective->bucket != bucket ||
               collective->bytes != packed.bytes || collective->step != step) {
      collective->same = false;
    }
    Passage& passage = collective->ranks[rank_];
    passage.arrival_ns = event.time_ns;
    passage.phase = static_cast<Phase>(event.phase);
    return passage;
  }

  void read_of_group(const Event& event) {
    const auto group = groups_.place_of(rank_, event.subject);
    if (!group) return;
    if (event.kind == kGroupEnd) {
      const auto known = of_groups_.find({*group, event.sequence});
      if (known != of_groups_.end()) known->second.ranks[rank_].end_ns = event.time_ns;
      return;
    }
    const auto [place, fresh] = of_groups_.try_emplace({*group, event.sequence});
    place->second.group = group;
    enter(event, -1, fresh, &place->second);
  }

  void arrive(const Event& event) {
    const auto [place, fresh] = collectives_.try_emplace(event.sequence);
    Passage& passage = enter(event, event.subject, fresh, &place->second);
    last_of_bucket_[event.subject] = event.sequence;
    if (const auto ready = ready_.find(event.subject);
        event.subject >= 0 && ready != ready_.end()) {
      passage.ready_ns = ready->second;
      ready_.erase(ready);
    }
  }

  // The host called long before its device had the gradients: as far as others are concerned, the
  // rank came when the device did. What a clock's uncertainty puts behind the end is at the end.
  void correct(const Event& event) {
    const auto found = last_of_bucket_.find(event.subject);
    if (found == last_of_bucket_.end()) return;
    Passage& passage = collectives_.at(found->second).ranks[rank_];
    const auto time_ns = static_cast<int64_t>(event.value);
    device_uncertainty_ns = std::max<int64_t>(device_uncertainty_ns, event.sequence);
    for (auto* moved : {&passage.ready_ns, &passage.arrival_ns, &passage.launched_ns}) {
      if (!*moved) continue;
      *moved = std::max(**moved, time_ns);
      if (passage.end_ns) *moved = std::min(**moved, *passage.end_ns);
    }
  }

  // Null for a collective whose arrival was dropped.
  Passage* known(const Event& event) {
    const auto found = collectives_.find(event.sequence);
    return found == collectives_.end() ? nullptr : &found->second.ranks[rank_];
  }

  const size_t rank_, world_size_;
  const GroupTable& groups_;
  Collectives& collectives_;
  GroupCollectives& of_groups_;
  std::map<int32_t, int64_t> ready_;            // bucket -> when, in this step
  std::map<int32_t, uint32_t> last_of_bucket_;  // -> the sequence of its last collective
  bool open_ = false;                           // the last phase has not ended
  int64_t core_wait_ns_ = 0;                    // so far
  std::optional<uint32_t> others_core_wait_us_;
  int64_t last_ns_ = 0;
};

// c10d::Reducer waits for its buckets at the end of backward, before backward returns: once it has
// entered the last one, it is waiting.
void split_backward(const std::vector<int64_t>& bucket_arrivals,
                    std::vector<PhaseInterval>* phases) {
  std::vector<PhaseInterval> split;
  for (const PhaseInterval& phase : *phases) {
    split.push_back(phase);
    if (phase.phase != Phase::backward) continue;
    const auto after =
        std::lower_bound(bucket_arrivals.begin(), bucket_arrivals.end(), phase.time.end_ns);
    if (after == bucket_arrivals.begin() || *std::prev(after) < phase.time.begin_ns) continue;
    const int64_t wait_ns = *std::prev(after) + 1;  // the arrival itself is the last of backward
    if (wait_ns >= phase.time.end_ns) continue;
    split.back().time.end_ns = wait_ns;
    split.push_back({Phase::wait, phase.step, {wait_ns, phase.time.end_ns}, 0});
  }
  *phases = std::move(split);
}

// A device computes on when backward has returned: it lasts until the last bucket is there.
void stretch_backward(const std::vector<int64_t>& bucket_arrivals,
                      std::vector<PhaseInterval>* phases) {
  for (size_t i = 0; i + 1 < phases->size(); ++i) {
    Interval& backward = (*phases)[i].time;
    Interval& next = (*phases)[i + 1].time;
    if ((*phases)[i].phase != Phase::backward) continue;
    const auto after =
        std::upper_bound(bucket_arrivals.begin(), bucket_arrivals.end(), next.end_ns);
    if (after == bucket_arrivals.begin() || *std::prev(after) <= backward.end_ns) continue;
    backward.end_ns = next.begin_ns = *std::prev(after);
  }
}

std::vector<int64_t> bucket_arrivals(const Collectives& collectives, size_t rank) {
  std::vector<int64_t> arrivals;
  for (const auto& [sequence, collective] : collectives)
    if (collective.bucket >= 0 && collective.ranks[rank].arrival_ns)
      arrivals.push_back(*collective.ranks[rank].arrival_ns);
  std::sort(arrivals.begin(), arrivals.end());
  return arrivals;
}

std::string problem_of(const Collective& collective) {
  for (size_t rank = 0; rank < collective.ranks.size(); ++rank) {
    const Passage& passage = collective.ranks[rank];
    const char* lacks = !passage.arrival_ns ? "arrival" : !passage.end_ns ? "end" : nullptr;
    if (lacks != nullptr)
      return fmt::format("rank {}: no {} of collective {}", rank, lacks, collective.sequence);
  }
  return collective.same
             ? ""
             : fmt::format("ranks called different collectives as {}", collective.sequence);
}

std::string problem_of(const std::vector<OwnSteps>& ranks, int64_t step) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto own = ranks[rank].find(step);
    if (own == ranks[rank].end() || own->second.cut)
      return fmt::format("rank {}: its events were dropped or not written", rank);
    if (!own->second.ended) return fmt::format("rank {} did not end it", rank);
  }
  return "";
}

void add_steps(const std::vector<OwnSteps>& ranks, Timeline* timeline) {
  std::map<int64_t, Step> steps;
  for (const OwnSteps& own : ranks)
    for (const auto& [number, step] : own) steps[number].step = number;
  for (size_t i = 0; i < timeline->collectives.size(); ++i)
    if (const auto step = steps.find(timeline->collectives[i].step); step != steps.end())
      step->second.collectives.push_back(i);
  for (auto& [number, step] : steps) {
    std::string why = problem_of(ranks, number);
    for (size_t i = 0; i < step.collectives.size() && why.empty(); ++i)
      why = problem_of(timeline->collectives[step.collectives[i]]);
    if (!why.empty()) {
      timeline->left_out.push_back({number, std::move(why)});
      continue;
    }
    for (const OwnSteps& own : ranks) step.ranks.push_back(own.at(number).step);
    timeline->steps.push_back(std::move(step));
  }
}

}  // namespace

const char* operation_of(const Collective& collective) {
  const char* word = word_of_call(collective.operation);
  return word == nullptr ? "collective" : word;
}

Timeline timeline_of(const RunOutcome& outcome) {
  Timeline timeline;
  timeline.world_size = ranks_of(outcome.plan.scenario);
  const auto world_size = static_cast<size_t>(timeline.world_size);
  Collectives collectives;
  GroupCollectives of_groups;
  const GroupTable groups = groups_of(outcome);
  std::vector<OwnSteps> steps(world_size);
  timeline.phases.resize(world_size);
  bool any = false;
  for (size_t rank = 0; rank < std::min(world_size, outcome.ranks.size()); ++rank) {
    const RankRecords& records = outcome.ranks[rank];
    timeline.dropped += records.dropped;
    timeline.clock_uncertainty_ns =
        std::max(timeline.clock_uncertainty_ns, records.clock_uncertainty_ns);
    for (const Event& event : records.events) {
      timeline.origin_ns = any ? std::min(timeline.origin_ns, event.time_ns) : event.time_ns;
      any = true;
    }
    RankReader reader(rank, world_size, groups, &collectives, &of_groups);
    reader.read(records);
    timeline.clock_uncertainty_ns =
        std::max(timeline.clock_uncertainty_ns, reader.device_uncertainty_ns);
    steps[rank] = std::move(reader.steps);
    timeline.phases[rank] = std::move(reader.phases);
    const bool on_device = reader.device_uncertainty_ns > 0;
    const bool waits_inside = outcome.plan.scenario.reducer.kind == "c10d";
    if (!on_device && !waits_inside) continue;
    const std::vector<int64_t> arrivals = bucket_arrivals(collectives, rank);
    const auto adjust = [&](std::vector<PhaseInterval>* phases) {
      if (waits_inside) split_backward(arrivals, phases);
      if (on_device) stretch_backward(arrivals, phases);
    };
    adjust(&timeline.phases[rank]);
    for (auto& [number, own] : steps[rank]) adjust(&own.step.phases);
  }
  for (auto& [sequence, collective] : collectives)
    timeline.collectives.push_back(std::move(collective));
  for (auto& [key, collective] : of_groups)
    timeline.group_collectives.push_back(std::move(collective));
  timeline.groups = groups.groups;
  add_steps(steps, &timeline);
  return timeline;
}

}  // namespace lockstep
