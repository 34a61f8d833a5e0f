#include "sim/calibrate/samples.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "reducer/probe.h"
#include "scenarios/layer_times.h"
#include "sim/plan/ready_times.h"

namespace lockstep {
namespace {

bool averages_gradients(const Collective& b) {
  return b.bucket >= 0 && b.same && b.operation == static_cast<uint8_t>(Operation::all_reduce);
}

bool is_whole(const Collective& b) {
  return std::all_of(b.ranks.begin(), b.ranks.end(),
                     [](const Passage& p) { return p.arrival_ns && p.end_ns; });
}

void add_collectives(const Timeline& timeline, const Step& step, RunSamples* samples) {
  int64_t free_ns = 0;
  for (const size_t place : step.collectives) {
    const Collective& b = timeline.collectives[place];
    if (!averages_gradients(b) || !is_whole(b)) continue;
    int64_t begin_ns = free_ns, end_ns = 0;
    for (const Passage& passage : b.ranks) {
      begin_ns = std::max(begin_ns, passage.launched_ns.value_or(*passage.arrival_ns));
      end_ns = std::max(end_ns, *passage.end_ns);
    }
    free_ns = end_ns;
    samples->collectives.push_back({timeline.world_size, b.bytes,
                                    static_cast<double>(std::max<int64_t>(end_ns - begin_ns, 1))});
  }
}

const PhaseInterval* find_phase(const RankStep& step, Phase phase) {
  for (const PhaseInterval& interval : step.phases)
    if (interval.phase == phase) return &interval;
  return nullptr;
}

void add_phase(const RankStep& step, Phase phase, std::vector<double>* into) {
  if (const PhaseInterval* interval = find_phase(step, phase))
    into->push_back(static_cast<double>(interval->time.length_ns()));
}

// Parameters that become ready at known times; a bucket is, with the last of its own.
void add_lateness(const Timeline& timeline, const Step& step, size_t rank,
                  const std::map<int64_t, double>& ready_ns, RunSamples* samples) {
  const PhaseInterval* backward = find_phase(step.ranks[rank], Phase::backward);
  if (backward == nullptr) return;
  for (const size_t place : step.collectives) {
    const Collective& b = timeline.collectives[place];
    const auto planned = ready_ns.find(b.bucket);
    if (!averages_gradients(b) || planned == ready_ns.end() || !b.ranks[rank].arrival_ns) continue;
    samples->late_ns.push_back(
        static_cast<double>(*b.ranks[rank].arrival_ns - backward->time.begin_ns) - planned->second);
  }
}

void add_rank(const Timeline& timeline, const Step& step, size_t rank, RunSamples* samples) {
  const RankStep& own = step.ranks[rank];
  add_phase(own, Phase::load, &samples->load_ns);
  add_phase(own, Phase::forward, &samples->forward_ns);
  add_phase(own, Phase::backward, &samples->backward_ns);
  int64_t last_ns = 0;
  if (const PhaseInterval* backward = find_phase(own, Phase::backward))
    last_ns = backward->time.end_ns;
  for (const size_t place : step.collectives)
    if (averages_gradients(timeline.collectives[place]))
      last_ns = std::max(last_ns, timeline.collectives[place].ranks[rank].end_ns.value_or(0));
  if (last_ns > 0 && own.time.end_ns >= last_ns)
    samples->finish_ns.push_back(static_cast<double>(own.time.end_ns - last_ns));
}

}  // namespace

RunSamples samples_of(const RunPlan& plan, const Timeline& timeline, const std::string& run) {
  RunSamples samples;
  samples.run = run;
  samples.emulated = !plan.layer_times.empty();
  std::map<int64_t, double> ready_ns;
  const bool plain = plan.scenario.faults.empty() && plan.scenario.accumulate_steps == 1;
  if (samples.emulated && plain) ready_ns = planned_bucket_ready_ns(plan);
  for (const Step& step : timeline.steps) {
    if (step.step <= plan.start_step + 1) continue;
    add_collectives(timeline, step, &samples);
    for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
      add_rank(timeline, step, rank, &samples);
      add_lateness(timeline, step, rank, ready_ns, &samples);
    }
  }
  return samples;
}

}  // namespace lockstep
