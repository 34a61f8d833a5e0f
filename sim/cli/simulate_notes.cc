#include "sim/cli/simulate_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "scenarios/base/text.h"
#include "sim/fault/acts/moments.h"

namespace lockstep {
namespace {

// What is not measured but taken from the nearest size, of the buckets' all-reduces.
std::string outside_measured(const Job& job) {
  const auto measured = measured_sizes(job.cost, job.ranks);
  if (!measured || job.parts || job.shards) return "";
  int64_t smaller = 0, larger = 0, largest = 0;
  for (const BucketWork& bucket : job.settled) {
    smaller += bucket.bytes < measured->first ? 1 : 0;
    larger += bucket.bytes > measured->second ? 1 : 0;
    largest = std::max(largest, bucket.bytes);
  }
  std::string text;
  if (smaller > 0)
    text = fmt::format(
        "{} {} smaller than anything measured at {} ranks ({} bytes), and taken to "
        "last as long",
        smaller, smaller == 1 ? "bucket is" : "buckets are", job.ranks, grouped(measured->first));
  if (larger > 0)
    text += fmt::format(
        "{}{} of up to {} bytes {} larger than anything measured at {} ranks ({} "
        "bytes), and taken to go at its rate",
        text.empty() ? "" : "; ", larger, grouped(largest),
        larger == 1 ? "bucket is" : "buckets are", job.ranks, grouped(measured->second));
  return text;
}

}  // namespace

void note_timeouts(const RunPlan& plan, const SimulatedAs& as, SimulatedLine* line) {
  const Timeouts& timeouts = plan.scenario.timeouts;
  const auto note = [&](const char* key, double took_ms, int64_t limit_ms) {
    if (took_ms > static_cast<double>(limit_ms))
      line->notes.push_back(fmt::format(
          "{} is {} ms, after which a real run is ended: here {:.0f} ms", key, limit_ms, took_ms));
  };
  note("/timeouts/step_ms", line->numbers.longest_ms, timeouts.step_ms);
  if (!as.steps) note("/timeouts/run_ms", line->numbers.total_s * 1e3, timeouts.run_ms);
}

void note_machine(const MachineModel& machine, const Job& job, SimulatedLine* line) {
  // As the scenario says it, before its ranks wait for the slowest.
  const double ns_per_ms = 1e6 * slowest_of(job.ranks, machine.rank_spread);
  if (machine.accuracy && !accuracy_of(machine, job))
    line->notes.push_back(fmt::format(
        "how far the machine's steps are off is known of compute of {:.6g} + {:.6g} ms alone, and "
        "this is {:.6g} + {:.6g}: --set /compute/forward_ms={:.6g} --set /compute/backward_ms="
        "{:.6g}",
        machine.accuracy->forward_ms, machine.accuracy->backward_ms,
        static_cast<double>(job.forward_ns) / ns_per_ms,
        static_cast<double>(job.backward_ns) / ns_per_ms, machine.accuracy->forward_ms,
        machine.accuracy->backward_ms));
  if (const std::string words = outside_measured(job); !words.empty()) line->notes.push_back(words);
  for (const std::string& words : unused_keys(machine, job.cost.algorithm))
    line->notes.push_back(words);
  if (!machine.why_not_compared.empty()) line->notes.push_back(machine.why_not_compared);
  if (job.cost.rails && job.cost.algorithm == Algorithm::hierarchical && !job.shards)
    line->notes.push_back("rings across hosts keep to their rails, which cost them nothing");
  const bool one_at_a_time =
      is_ring(job.cost.algorithm) || job.cost.algorithm == Algorithm::double_binary_tree;
  if (job.cost.nics_per_host > 1 && !job.cost.stripes && one_at_a_time && !job.shards &&
      goes_across(job.cost, job.ranks))
    line->notes.push_back(
        fmt::format("{} NICs a host: in a {} one rank of a host sends out of it at a time, over "
                    "one of them",
                    job.cost.nics_per_host, to_word(job.cost.algorithm)));
}

void note_seed(const SimulateVerb& verb, const RunPlan& plan, const Job& job, SimulatedLine* line) {
  if (!verb.selection.seed || verb.mtbf_hours || job.noise.any()) return;
  const auto moments = moments_of(plan.scenario);
  if (std::any_of(moments.begin(), moments.end(),
                  [](const FaultMoments& fault) { return fault.draws(); }))
    return;
  line->notes.emplace_back(
      "--seed changes no time: nothing is drawn without noise, faults that are drawn, or "
      "--mtbf-hours");
}

void note_rounds(const SimulateVerb& verb, const MachineModel& machine, const Job& job,
                 SimulatedLine* line) {
  if (job.shards || job.parts || !is_ring(job.cost.algorithm) || !verb.algorithm.empty() ||
      machine.algorithm || !job.cost.tables.empty() || job.settled.empty())
    return;
  const int64_t bytes = job.settled.front().bytes;
  CostModel tree = job.cost;
  tree.algorithm = Algorithm::double_binary_tree;
  const int64_t by_ring_ns = all_reduce_ns(job.cost, bytes, job.ranks);
  const int64_t by_tree_ns = all_reduce_ns(tree, bytes, job.ranks);
  if (by_ring_ns - by_tree_ns <= job.passes * (job.forward_ns + job.backward_ns)) return;
  line->notes.push_back(fmt::format(
      "a ring of {} ranks has {} rounds, {:.1f} ms of a bucket's {:.1f} ms; --algorithm {}: {:.1f} "
      "ms",
      grouped(job.ranks), grouped(2 * (job.ranks - 1)),
      static_cast<double>(all_reduce_ns(job.cost, 0, job.ranks)) * 1e-6,
      static_cast<double>(by_ring_ns) * 1e-6, to_word(tree.algorithm),
      static_cast<double>(by_tree_ns) * 1e-6));
}

}  // namespace lockstep
