#include "sim/calibrate/fit.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "reducer/probe.h"
#include "scenarios/layer_times.h"
#include "sim/analysis/step_model.h"
#include "sim/calibrate/wire.h"
#include "sim/plan/bucket_layout.h"

namespace lockstep {

const char* const kOneSize =
    "all buckets have about the same size, which does not tell a message from its bytes: taken for "
    "one of a loopback";

namespace {

bool is_of(const Collective& b, Operation operation) {
  return b.operation == static_cast<uint8_t>(operation);
}

bool averages_gradients(const Collective& b) {
  return b.bucket >= 0 && b.same &&
         (is_of(b, Operation::all_reduce) || is_of(b, Operation::all_to_all));
}

// Places of what brings buckets together: of exchanged ones the gathering, too. Of as many as there
// are buckets the step's last all-gathers; others may tell of unused parameters.
std::vector<size_t> of_buckets(const Timeline& timeline, const Step& step) {
  std::vector<size_t> buckets, gathers;
  size_t exchanged = 0;
  for (const size_t place : step.collectives) {
    const Collective& b = timeline.collectives[place];
    if (averages_gradients(b)) buckets.push_back(place);
    if (averages_gradients(b) && is_of(b, Operation::all_to_all)) ++exchanged;
    if (b.bucket < 0 && b.same && is_of(b, Operation::all_gather)) gathers.push_back(place);
  }
  const size_t others = gathers.size() - std::min(exchanged, gathers.size());
  buckets.insert(buckets.end(), gathers.begin() + static_cast<int64_t>(others), gathers.end());
  return buckets;
}

bool is_whole(const Collective& b) {
  return std::all_of(b.ranks.begin(), b.ranks.end(),
                     [](const Passage& p) { return p.arrival_ns && p.end_ns; });
}

// Returns when each had the wire, one after the other.
std::vector<Interval> add_collectives(const Timeline& timeline, const Step& step,
                                      RunSamples* samples) {
  std::vector<OnWire> on_wire;
  std::vector<Operation> operations;
  for (const size_t place : of_buckets(timeline, step)) {
    const Collective& b = timeline.collectives[place];
    if (!is_whole(b)) continue;
    operations.push_back(static_cast<Operation>(b.operation));
    OnWire& one = on_wire.emplace_back();
    for (const Passage& passage : b.ranks) {
      one.begin_ns = std::max(one.begin_ns, passage.launched_ns.value_or(*passage.arrival_ns));
      one.end_ns = std::max(one.end_ns, *passage.end_ns);
    }
    one.bytes = b.bytes;
  }
  const std::vector<double> times = wire_times_ns(on_wire);
  std::vector<Interval> busy;
  for (size_t i = 0; i < times.size(); ++i) {
    samples->collectives.push_back(
        {timeline.world_size, on_wire[i].bytes, std::max(times[i], 1.0), operations[i]});
    busy.push_back({on_wire[i].end_ns - std::llround(times[i]), on_wire[i].end_ns});
  }
  return busy;
}

// How much of `time` do these cover, of which no two overlap?
double covered_ns(const Interval& time, const std::vector<Interval>& by) {
  int64_t sum_ns = 0;
  for (const Interval& one : by)
    sum_ns += std::max<int64_t>(
        std::min(time.end_ns, one.end_ns) - std::max(time.begin_ns, one.begin_ns), 0);
  return static_cast<double>(sum_ns);
}

// The first one of a step; none of its micro-batches but the last is communicated.
const PhaseInterval* find_phase(const RankStep& step, Phase phase) {
  for (const PhaseInterval& interval : step.phases)
    if (interval.phase == phase) return &interval;
  return nullptr;
}

const PhaseInterval* last_phase(const RankStep& step, Phase phase) {
  for (auto interval = step.phases.rbegin(); interval != step.phases.rend(); ++interval)
    if (interval->phase == phase) return &*interval;
  return nullptr;
}

void add_phase(const RankStep& step, Phase phase, std::vector<double>* into) {
  if (const PhaseInterval* interval = find_phase(step, phase))
    into->push_back(static_cast<double>(interval->time.length_ns()));
}

// Parameters that become ready at known times; a bucket is, with the last of its own.
void add_lateness(const Timeline& timeline, const Step& step, size_t rank,
                  const std::map<int64_t, double>& ready_ns, RunSamples* samples) {
  const PhaseInterval* backward = last_phase(step.ranks[rank], Phase::backward);
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
  if (const PhaseInterval* backward = last_phase(own, Phase::backward))
    last_ns = backward->time.end_ns;
  for (const size_t place : of_buckets(timeline, step))
    last_ns = std::max(last_ns, timeline.collectives[place].ranks[rank].end_ns.value_or(0));
  if (last_ns > 0 && own.time.end_ns >= last_ns)
    samples->finish_ns.push_back(static_cast<double>(own.time.end_ns - last_ns));
}

// What a backward computes, but for its reducer, and on how many ranks that share the cores.
std::string compute_of(const RunPlan& plan) {
  const Scenario& scenario = plan.scenario;
  const auto json = as_json(scenario);
  return json["model"].dump() + json["data"].dump() + scenario.dtype +
         fmt::format("{} of {} {}", planned_samples(scenario), scenario.world_size,
                     scenario.threads);
}

}  // namespace

int64_t median_ns(const std::vector<double>& samples_ns) {
  return samples_ns.empty() ? 0 : std::max<int64_t>(0, std::llround(median_of(samples_ns)));
}

RunSamples samples_of(const RunPlan& plan, const Timeline& timeline, const std::string& run) {
  RunSamples samples;
  samples.run = run;
  samples.emulated = !plan.layer_times.empty();
  std::map<int64_t, double> ready_ns;
  const bool plain = plan.scenario.faults.empty() && plan.scenario.accumulate_steps == 1;
  if (samples.emulated && plain) ready_ns = planned_bucket_ready_ns(plan);
  // Of virtual shards all but the last one's backward have no bucket.
  const bool one_backward = plain && !has_virtual_shards(plan.scenario);
  const std::string compute = one_backward && !samples.emulated ? compute_of(plan) : "";
  for (const Step& step : timeline.steps) {
    if (step.step <= plan.start_step + 1) continue;
    const std::vector<Interval> busy = add_collectives(timeline, step, &samples);
    for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
      const PhaseInterval* backward = find_phase(step.ranks[rank], Phase::backward);
      if (!compute.empty() && backward != nullptr)
        samples.backwards.push_back({compute, static_cast<int64_t>(busy.size()),
                                     static_cast<double>(backward->time.length_ns()),
                                     covered_ns(backward->time, busy)});
      add_rank(timeline, step, rank, &samples);
      add_lateness(timeline, step, rank, ready_ns, &samples);
    }
  }
  return samples;
}

namespace {

struct Size {
  Operation operation{};
  int64_t ranks = 0, bytes = 0;
  bool operator<(const Size& other) const {
    return std::tie(operation, ranks, bytes) < std::tie(other.operation, other.ranks, other.bytes);
  }
};
using Sizes = std::map<Size, std::vector<double>>;  // ns
using MediansBySize = std::map<Size, double>;

struct Line {
  double alpha_ns = 0, beta_ns_per_byte = 0;
  bool alpha_assumed = false;
};

double messages(const Size& size) {
  return (size.operation == Operation::all_reduce ? 2.0 : 1.0) *
         static_cast<double>(size.ranks - 1);
}

double bytes_on_wire(const Size& size, int64_t cores) {
  const auto p = static_cast<double>(size.ranks);
  const double shared = std::max(1.0, p / static_cast<double>(std::max<int64_t>(cores, 1)));
  return messages(size) / p * static_cast<double>(size.bytes) * shared;
}

double at(const Line& line, const Size& size, int64_t cores) {
  return line.alpha_ns * messages(size) + line.beta_ns_per_byte * bytes_on_wire(size, cores);
}

// Do these differ by too little to tell what a message costs from what a byte does?
bool are_of_one_size(const MediansBySize& medians, int64_t cores) {
  constexpr double kApart = 1.5;
  double least = 0, most = 0;
  for (const auto& [size, ns] : medians) {
    const double bytes = bytes_on_wire(size, cores) / messages(size);
    least = least > 0 ? std::min(least, bytes) : bytes;
    most = std::max(most, bytes);
  }
  return most < kApart * least;
}

// Each size counts alike, by its relative error. Neither number below 0.
Line fit_line(const MediansBySize& medians, int64_t cores) {
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
  for (const auto& [size, ns] : medians) {
    const double a = messages(size) / ns;
    const double b = bytes_on_wire(size, cores) / ns;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    ay += a;
    by += b;
  }
  if (bb > 0 && are_of_one_size(medians, cores)) {  // a message is taken for one of a loopback
    const auto assumed_ns = static_cast<double>(default_machine_model().cost.link.alpha_ns);
    const double alpha_ns = std::min(assumed_ns, ay / aa);
    return {alpha_ns, std::max(0.0, (by - alpha_ns * ab) / bb), true};
  }
  const double determinant = aa * bb - ab * ab;
  Line line{ay / aa, 0};
  if (bb > 0 && determinant > 1e-12 * aa * bb)
    line = {(ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant};
  if (line.beta_ns_per_byte < 0) line = {ay / aa, 0};
  if (line.alpha_ns < 0) line = {0, bb > 0 ? by / bb : 0};
  return line;
}

MediansBySize medians_of(const Sizes& sizes) {
  MediansBySize medians;
  for (const auto& [size, values] : sizes) medians[size] = median_of(values);
  return medians;
}

// The values of each size drawn anew from themselves.
Sizes resampled(const Sizes& sizes, int round) {
  Sizes drawn;
  size_t index = 0;
  for (const auto& [size, values] : sizes)
    for (size_t i = 0; i < values.size(); ++i)
      drawn[size].push_back(values[resampled_place(round, index++, values.size())]);
  return drawn;
}

double mb_per_s(const Line& line) {
  return line.beta_ns_per_byte > 0 ? 1e3 / line.beta_ns_per_byte : 0;
}

void fill_intervals(const Sizes& sizes, const Line& line, int64_t cores, Fit* fit) {
  std::vector<double> latencies, bandwidths;
  for (int i = 0; i < kResamplings; ++i) {
    const Line drawn = fit_line(medians_of(resampled(sizes, i)), cores);
    latencies.push_back(drawn.alpha_ns * 1e-3);
    bandwidths.push_back(mb_per_s(drawn));
  }
  fit->latency_us = interval_of(line.alpha_ns * 1e-3, latencies);
  fit->bandwidth_mb_per_s = interval_of(mb_per_s(line), bandwidths);
}

void fill_residuals(const Sizes& sizes, const Line& line, int64_t cores, Fit* fit) {
  for (const auto& [size, values] : sizes) {
    FittedSize one{size.operation, size.ranks, size.bytes, static_cast<int64_t>(values.size())};
    one.measured_us = median_of(values) * 1e-3;
    one.fitted_us = at(line, size, cores) * 1e-3;
    const double error = std::fabs(one.fitted_us / one.measured_us - 1);
    fit->mean_error += error / static_cast<double>(sizes.size());
    fit->largest_error = std::max(fit->largest_error, error);
    fit->sizes.push_back(one);
  }
}

void append(const std::vector<double>& from, std::vector<double>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

// What backward takes, without what the reducer is known to cost it.
void fill_backward(const RunSamples& all, Fit* fit) {
  MachineModel& machine = fit->machine;
  const auto& bucket = fit->backward.bucket_us.number;
  const auto& slow = fit->backward.overlap_slowdown.number;
  if (bucket) machine.bucket_ns = std::llround(bucket->value * 1e3);
  if (slow) machine.overlap_slowdown = slow->value;
  std::vector<double> bare_ns = all.backward_ns;
  if (bucket || slow) {
    bare_ns.clear();
    for (const BackwardSample& sample : all.backwards)
      bare_ns.push_back(bare_backward_ns(sample, fit->backward));
  }
  machine.backward_ms = static_cast<double>(median_ns(bare_ns)) * 1e-6;
}

void fill_step(const std::vector<RunSamples>& runs, Fit* fit) {
  MachineModel* machine = &fit->machine;
  RunSamples all;
  bool real = false;
  for (const RunSamples& run : runs) {
    append(run.load_ns, &all.load_ns);
    append(run.finish_ns, &all.finish_ns);
    append(run.late_ns, &all.late_ns);
    if (run.emulated) continue;
    real = true;
    append(run.forward_ns, &all.forward_ns);
    append(run.backward_ns, &all.backward_ns);
    all.backwards.insert(all.backwards.end(), run.backwards.begin(), run.backwards.end());
  }
  machine->load_ns = median_ns(all.load_ns);
  machine->optimizer_ns = median_ns(all.finish_ns);
  machine->launch_ns = median_ns(all.late_ns);
  fit->backward = backward_costs(all.backwards);
  if (!real) return;
  machine->forward_ms = static_cast<double>(median_ns(all.forward_ns)) * 1e-6;
  fill_backward(all, fit);
}

}  // namespace

Expected<Fit> fit_machine(const std::vector<RunSamples>& runs, int64_t cores) {
  Fit fit;
  Sizes sizes;
  for (const RunSamples& run : runs) {
    fit.machine.fitted_on.push_back(run.run);
    for (const CollectiveSample& sample : run.collectives)
      if (sample.ranks > 1)
        sizes[{sample.operation, sample.ranks, sample.bytes}].push_back(sample.ns);
    fit.samples += static_cast<int64_t>(run.collectives.size());
  }
  fit.runs = static_cast<int64_t>(runs.size());
  if (sizes.empty()) {
    return option_error(
        "these runs bring no bucket of more than one rank together after their first step",
        "kept runs of several steps and ranks, with a reducer that has buckets");
  }
  const Line line = fit_line(medians_of(sizes), cores);
  fit.latency_assumed = line.alpha_assumed;
  fill_intervals(sizes, line, cores, &fit);
  fill_residuals(sizes, line, cores, &fit);
  MachineModel& machine = fit.machine;
  machine.cost.ranks_per_host = kMostRanks;
  machine.cost.link.alpha_ns = std::llround(line.alpha_ns);
  machine.cost.core_fs_per_byte = std::llround(line.beta_ns_per_byte * 1e6);
  machine.cost.cores_per_host = cores;
  fill_step(runs, &fit);
  return fit;
}

nlohmann::ordered_json as_json(const Fit& fit) {
  const auto number = [](const FittedNumber& n) {
    return nlohmann::ordered_json{{"value", n.value}, {"low", n.low}, {"high", n.high}};
  };
  const auto maybe = [&](const MaybeFitted& n) {
    return n.number ? number(*n.number) : nlohmann::ordered_json{{"unknown", n.unknown}};
  };
  nlohmann::ordered_json json = {
      {"runs", fit.runs},
      {"samples", fit.samples},
      {"latency_us", fit.latency_assumed ? nlohmann::ordered_json{{"unknown", kOneSize}}
                                         : number(fit.latency_us)},
      {"bandwidth_mb_per_s", number(fit.bandwidth_mb_per_s)},
      {"bucket_us", maybe(fit.backward.bucket_us)},
      {"overlap_slowdown", maybe(fit.backward.overlap_slowdown)},
      {"mean_error", fit.mean_error},
      {"largest_error", fit.largest_error}};
  for (const FittedSize& size : fit.sizes)
    json["sizes"].push_back({{"operation", to_word(size.operation)},
                             {"world_size", size.ranks},
                             {"bytes", size.bytes},
                             {"samples", size.samples},
                             {"measured_us", size.measured_us},
                             {"fitted_us", size.fitted_us}});
  return json;
}

}  // namespace lockstep
