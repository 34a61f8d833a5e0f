#include "sim/calibrate/traced_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "scenarios/base/text.h"
#include "scenarios/manifest.h"
#include "scenarios/traced_layers.h"
#include "sim/analysis/step_model.h"
#include "sim/calibrate/wire.h"

namespace lockstep {
namespace {

constexpr const char* kRanksAllowed =
    "traces of the same steps of one training's ranks, on one host";

// One bucket as a rank saw it, on a clock that ranks share.
struct SeenBucket {
  double begin_us = 0, end_us = 0, ready_us = 0;
  int64_t bytes = 0;
};

// One step of a rank: its last backward, and what it brought together.
struct SeenStep {
  double load_us = -1;  // none: the forward's begin is not marked
  double done_us = 0;   // the last gradient, or the last bucket
  double end_us = 0;
  std::vector<SeenBucket> buckets;
  bool whole = false;  // they are all that was launched, in the order of gradients
};

// What a rank's trace says, step by step.
class SeenSteps {
 public:
  SeenSteps(const TracedRank& rank, double base_us)
      : rank_(rank), shift_us_(rank.trace.base_us - base_us) {
    for (const TraceCall& call : rank.trace.calls)
      if (call.operation == "all_reduce" && call.bytes > 0 && !rank.trace.on_gpu)
        calls_.push_back(&call);
  }

  std::vector<SeenStep> steps() {
    std::vector<SeenStep> steps;
    const auto& backwards = rank_.training.backwards;
    size_t next = 0;
    for (const TraceInterval& marked : rank_.trace.steps) {
      const TraceInterval time{done_us(rank_.trace, marked.begin_us),
                               done_us(rank_.trace, marked.end_us)};
      while (next < backwards.size() && backwards[next].begin_us < time.begin_us) ++next;
      const size_t first = next;
      while (next < backwards.size() && backwards[next].begin_us < time.end_us) ++next;
      if (next > first) steps.push_back(step(time, backwards[first], backwards[next - 1]));
    }
    return steps;
  }

 private:
  SeenStep step(const TraceInterval& time, const TracedBackward& first,
                const TracedBackward& last) {
    SeenStep seen;
    if (first.forward_us && *first.forward_us >= time.begin_us)
      seen.load_us = *first.forward_us - time.begin_us;
    seen.end_us = time.end_us;
    seen.done_us = last.ready_us.back();
    seen.whole = add_buckets(time, last, &seen);
    for (const SeenBucket& bucket : seen.buckets)
      seen.done_us = std::max(seen.done_us, bucket.end_us - shift_us_);
    return seen;
  }

  bool add_buckets(const TraceInterval& time, const TracedBackward& backward, SeenStep* seen) {
    if (backward.launches.empty()) return false;
    while (call_ < calls_.size() && calls_[call_]->time.begin_us < backward.launches[0].begin_us)
      ++call_;
    const int64_t bytes_each = dtype_bytes(scenario_dtype(rank_.training.dtype));
    for (size_t gradient = 0; gradient < backward.ready_us.size(); ++call_) {
      if (call_ == calls_.size() || calls_[call_]->time.end_us > time.end_us) return false;
      const TraceCall& call = *calls_[call_];
      int64_t bytes = 0;
      while (bytes < call.bytes && gradient < backward.ready_us.size())
        bytes += TensorSpec{.name = {}, .dtype = {}, .shape = rank_.training.shapes[gradient++]}
                     .numel() *
                 bytes_each;
      if (bytes != call.bytes) return false;
      seen->buckets.push_back({call.time.begin_us + shift_us_, call.time.end_us + shift_us_,
                               backward.ready_us[gradient - 1] + shift_us_, bytes});
    }
    return true;
  }

  const TracedRank& rank_;
  const double shift_us_;  // of its clock, to the first rank's
  std::vector<const TraceCall*> calls_;
  size_t call_ = 0;
};

double ns_of_us(double us) { return us * 1e3; }
int64_t whole_ns(double us) { return std::llround(us * 1e3); }

bool same_buckets(const SeenStep& a, const SeenStep& b) {
  return std::equal(a.buckets.begin(), a.buckets.end(), b.buckets.begin(), b.buckets.end(),
                    [](const SeenBucket& x, const SeenBucket& y) { return x.bytes == y.bytes; });
}

// Adds one step of all ranks; empty, or why they are not steps of one training.
std::string add_step(const std::vector<const SeenStep*>& ranks, double bucket_ns,
                     TracedSteps* run) {
  std::vector<OnWire> on_wire;
  for (size_t b = 0; b < ranks[0]->buckets.size(); ++b) {
    double begin_us = ranks[0]->buckets[b].begin_us, end_us = 0,
           first_end_us = ranks[0]->buckets[b].end_us;
    double ready_us = ranks[0]->buckets[b].ready_us;
    for (const SeenStep* rank : ranks) {
      const SeenBucket& bucket = rank->buckets[b];
      begin_us = std::max(begin_us, bucket.begin_us);
      end_us = std::max(end_us, bucket.end_us);
      first_end_us = std::min(first_end_us, bucket.end_us);
      ready_us = std::max(ready_us, bucket.ready_us);
    }
    if (first_end_us < begin_us)
      return "a collective ended on a rank before another came to it: other steps, or other clocks";
    const double origin_us = ranks[0]->buckets[0].begin_us;
    on_wire.push_back(
        {whole_ns(begin_us - origin_us), whole_ns(end_us - origin_us), ranks[0]->buckets[b].bytes});
    run->samples.late_ns.push_back(ns_of_us(begin_us - ready_us) - bucket_ns);
  }
  const std::vector<double> times = shared_wire_times_ns(on_wire);
  for (size_t b = 0; b < times.size(); ++b)
    run->samples.collectives.push_back({static_cast<int64_t>(ranks.size()), on_wire[b].bytes,
                                        std::max(times[b], 1.0), Operation::all_reduce});
  return "";
}

void add_own_times(const std::vector<SeenStep>& steps, RunSamples* samples) {
  for (const SeenStep& step : steps) {
    if (step.load_us >= 0) samples->load_ns.push_back(ns_of_us(step.load_us));
    samples->finish_ns.push_back(ns_of_us(std::max(0.0, step.end_us - step.done_us)));
  }
}

std::string why_not_one_training(const std::vector<TracedRank>& ranks) {
  std::set<int64_t> seen;
  for (const TracedRank& rank : ranks) {
    if (rank.training.shapes != ranks[0].training.shapes ||
        rank.training.dtype != ranks[0].training.dtype)
      return "the gradients of one trace are not those of another";
    if (ranks.size() > 1 && !seen.insert(rank.trace.rank).second)
      return fmt::format("rank {} has several traces", rank.trace.rank);
    if (rank.trace.steps.empty())
      return "it marks no step (ProfilerStep#, which profiler.step() leaves)";
  }
  return "";
}

InputError refused_traces(const std::string& why) { return option_error(why, kRanksAllowed); }

// Where all ranks have them; else the step tells no collective.
std::optional<InputError> add_collectives(const std::vector<std::vector<SeenStep>>& all,
                                          double bucket_ns, TracedSteps* run) {
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const auto& steps) { return steps.size() != all[0].size(); });
  if (other != all.end())
    return refused_traces(
        fmt::format("one trace holds {} whole steps, another {}", all[0].size(), other->size()));
  for (size_t s = 0; s < all[0].size(); ++s) {
    std::vector<const SeenStep*> step;
    for (const auto& steps : all) step.push_back(&steps[s]);
    const bool whole = std::all_of(step.begin(), step.end(), [&](const SeenStep* one) {
      return one->whole && same_buckets(*one, *step[0]);
    });
    ++(whole ? run->steps : run->left_out);
    if (!whole) continue;
    if (const std::string why = add_step(step, bucket_ns, run); !why.empty())
      return refused_traces(why);
  }
  if (run->steps > 0) return std::nullopt;
  return refused_traces(
      "no step's collectives are told from other ones by their bytes (record_shapes=True), in the "
      "order of gradients");
}

}  // namespace

Expected<std::vector<TracedRank>> read_traced_ranks(const std::vector<std::string>& files) {
  std::vector<TracedRank> ranks;
  InputErrors errors;
  for (const std::string& file : files) {
    auto trace = read_kineto_trace(file);
    const auto training = trace ? training_of(trace.value()) : trace.errors();
    if (training)
      ranks.push_back({std::move(trace.value()), training.value()});
    else
      errors.insert(errors.end(), training.errors().begin(), training.errors().end());
  }
  if (!errors.empty()) return errors;
  return ranks;
}

std::string why_no_links(const std::vector<TracedRank>& ranks) {
  const auto traced = static_cast<int64_t>(ranks.size());
  const int64_t world = ranks[0].trace.world_size;
  if (world < 2) return "a training of one rank has no collectives";
  if (traced != world)
    return fmt::format("{} of {} ranks say nothing of how long a collective takes", traced, world);
  for (const TracedRank& rank : ranks)
    if (rank.trace.on_gpu) return "collectives of GPUs are not fitted";
  return "";
}

Expected<TracedSteps> traced_run(const std::vector<TracedRank>& ranks) {
  TracedSteps run;
  if (const std::string why = why_not_one_training(ranks); !why.empty()) return refused_traces(why);
  run.samples.run = printable(ranks[0].trace.file);
  run.samples.emulated = true;  // layers are the trace's own
  std::vector<std::vector<SeenStep>> all;
  for (const TracedRank& rank : ranks) {
    all.push_back(SeenSteps(rank, ranks[0].trace.base_us).steps());
    add_own_times(all.back(), &run.samples);
    for (const TracedBackward& backward : rank.training.backwards)
      for (const TraceInterval& launch : backward.launches)
        run.bucket_ns.push_back(ns_of_us(launch.end_us - launch.begin_us));
  }
  if (run.samples.finish_ns.empty()) return refused_traces("it holds no whole step");
  if (!why_no_links(ranks).empty()) return run;
  const double bucket_ns = run.bucket_ns.empty() ? 0 : median_of(run.bucket_ns);
  if (const auto problem = add_collectives(all, bucket_ns, &run)) return *problem;
  return run;
}

void fill_steps(const TracedSteps& run, MachineModel* machine, MaybeFitted* bucket_us) {
  machine->load_ns = median_ns(run.samples.load_ns);
  machine->optimizer_ns = median_ns(run.samples.finish_ns);
  machine->launch_ns = median_ns(run.samples.late_ns);
  machine->bucket_ns = median_ns(run.bucket_ns);
  machine->fitted_on = {run.samples.run};
  if (run.bucket_ns.empty()) {
    bucket_us->unknown = "no bucket was launched";
    return;
  }
  std::vector<double> drawn;
  for (int round = 0; round < kResamplings; ++round) {
    std::vector<double> values;
    for (size_t i = 0; i < run.bucket_ns.size(); ++i)
      values.push_back(run.bucket_ns[resampled_place(round, i, run.bucket_ns.size())]);
    drawn.push_back(median_of(values) * 1e-3);
  }
  bucket_us->number = interval_of(median_of(run.bucket_ns) * 1e-3, drawn);
}

Expected<Fit> fit_traces(const std::vector<TracedRank>& ranks, int64_t cores) {
  if (const std::string why = why_no_links(ranks); !why.empty()) return refused_traces(why);
  const auto run = traced_run(ranks);
  if (!run) return run.errors();
  auto fit = fit_machine({run.value().samples}, cores);
  if (!fit) return fit;
  fill_steps(run.value(), &fit.value().machine, &fit.value().backward.bucket_us);
  fit.value().of_traces = true;
  fit.value().backward.overlap_slowdown.unknown = "one trace's layers have it in them";
  return fit;
}

}  // namespace lockstep
