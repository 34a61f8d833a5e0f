#include "sim/tools/program/sweep_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "scenarios/base/text.h"
#include "scenarios/manifest.h"
#include "scenarios/parse/suite.h"
#include "sim/analysis/step_model.h"
#include "sim/calibrate/wire.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/simulate.h"
#include "sim/plan/bucket_layout.h"
#include "sim/plan/plans.h"
#include "sim/report/document.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kModelSteps = 5;  // of the scenario; the first has other buckets

double ns_between(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns);
}

// What traced runs show, as samples for fit_machine() and of each gradient.
class StepSamples {
 public:
  explicit StepSamples(const TracedProgram& first)
      : order_(first.ranks[0].trace->order), elements_(first.ranks[0].trace->elements) {
    ready_ns_.resize(order_.size());
    machine_.emulated = true;  // the layers' own times are in the profile
  }

  // False: a bucket is not made of parameters in the order of their gradients.
  bool add(const TracedProgram& run) {
    const size_t steps = run.ranks[0].trace->steps.size();
    for (size_t i = 0; i < steps; ++i) {
      const StepOfAll step = step_of_all(run, i);
      const auto lasts = lasts_of_buckets(step.sums, element_bytes(run));
      if (!lasts) return false;
      for (size_t place = 0; place < order_.size(); ++place)
        ready_ns_[place].push_back(ns_between(step.begin_ns, step.ready_ns[place]));
      add_sums(step, *lasts, static_cast<int64_t>(run.ranks.size()));
      for (const ProgramTimes& rank : run.ranks) add_rank(rank.trace->steps, i, step.last_ns);
    }
    return true;
  }

  const RunSamples& machine() const { return machine_; }

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> sizes;
    for (auto p = order_.rbegin(); p != order_.rend(); ++p) sizes.push_back(elements_[size_t(*p)]);
    return sizes;
  }

  // A bucket waits for those before it, so that a gradient that came early counts with the last.
  LayerTimes layers() const {
    LayerTimes layers;
    double ready_ms = 0;
    const double forward_ms =
        median_of(machine_.forward_ns) * 1e-6 / static_cast<double>(order_.size());
    for (size_t place = 0; place < order_.size(); ++place) {
      const double next_ms = std::max(ready_ms, median_of(ready_ns_[place]) * 1e-6);
      layers.push_back(
          {fmt::format("layer{}", order_.size() - place), forward_ms, next_ms - ready_ms, next_ms});
      ready_ms = next_ms;
    }
    std::reverse(layers.begin(), layers.end());
    return layers;
  }

 private:
  static int64_t element_bytes(const TracedProgram& run) {
    return dtype_bytes(simulated_dtype(run.ranks[0].trace->dtypes.front()));
  }

  // A step as the last rank comes to its places: what is summed waits for that one.
  struct StepOfAll {
    int64_t begin_ns = 0;           // of backward, mean of ranks
    std::vector<int64_t> ready_ns;  // by place; none before the one ahead of it
    std::vector<OnWire> sums;
    int64_t last_ns = 0;  // all gradients are there, and all sums have ended
  };

  StepOfAll step_of_all(const TracedProgram& run, size_t i) const {
    const TracedStep& first = run.ranks[0].trace->steps[i];
    StepOfAll all;
    all.ready_ns.resize(order_.size());
    all.sums.resize(first.buckets.size());
    double later_ns = 0;  // than the first rank's
    for (const ProgramTimes& rank : run.ranks) {
      const TracedStep& step = rank.trace->steps[i];
      later_ns += ns_between(first.backward_ns, step.backward_ns);
      for (size_t place = 0; place < order_.size(); ++place)
        all.ready_ns[place] = std::max({all.ready_ns[place], step.ready_ns[size_t(order_[place])],
                                        place > 0 ? all.ready_ns[place - 1] : 0});
      for (size_t b = 0; b < all.sums.size(); ++b)
        all.sums[b] = {std::max(all.sums[b].begin_ns, step.buckets[b].begin_ns),
                       std::max(all.sums[b].end_ns, step.buckets[b].end_ns),
                       first.buckets[b].bytes};
    }
    all.begin_ns =
        first.backward_ns + std::llround(later_ns / static_cast<double>(run.ranks.size()));
    all.last_ns = all.ready_ns.back();
    for (const OnWire& sum : all.sums) all.last_ns = std::max(all.last_ns, sum.end_ns);
    return all;
  }

  void add_rank(const std::vector<TracedStep>& steps, size_t i, int64_t last_ns) {
    const TracedStep& step = steps[i];
    if (i > 0) machine_.load_ns.push_back(ns_between(steps[i - 1].end_ns, step.forward_ns));
    machine_.forward_ns.push_back(ns_between(step.forward_ns, step.backward_ns));
    machine_.finish_ns.push_back(ns_between(last_ns, step.end_ns));
  }

  // The place in the order of the last parameter of each bucket.
  std::optional<std::vector<size_t>> lasts_of_buckets(const std::vector<OnWire>& sums,
                                                      int64_t bytes_each) const {
    std::vector<size_t> lasts;
    size_t place = 0;
    for (const OnWire& sum : sums) {
      int64_t bytes = 0;
      while (bytes < sum.bytes && place < order_.size())
        bytes += elements_[size_t(order_[place++])] * bytes_each;
      if (bytes != sum.bytes) return std::nullopt;
      lasts.push_back(place - 1);
    }
    if (place != order_.size()) return std::nullopt;
    return lasts;
  }

  void add_sums(const StepOfAll& step, const std::vector<size_t>& lasts, int64_t ranks) {
    const std::vector<double> times = shared_wire_times_ns(step.sums);  // Gloo has two threads
    for (size_t b = 0; b < lasts.size(); ++b) {
      machine_.late_ns.push_back(ns_between(step.ready_ns[lasts[b]], step.sums[b].begin_ns));
      machine_.collectives.push_back({ranks, step.sums[b].bytes, std::max(times[b], 1.0)});
    }
  }

  const std::vector<int64_t> order_, elements_;  // by place; by parameter
  std::vector<std::vector<double>>
      ready_ns_;  // by place, on the last rank, from the begin of backward
  RunSamples machine_;
};

double mib_of(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

Json model_json(const ProgramModel& model) {
  return {{"kind", "sized_layers"}, {"sizes", model.sizes}};
}

Json scenario_json(const ProgramModel& model, double cap_mb, int64_t first_bucket) {
  return {
      {"name", "program"},
      {"what", "From `lockstep sweep --predict -- " + model.command + "`"},
      {"world_size", model.world_size},
      {"steps", kModelSteps},
      {"batch_size", model.world_size},
      {"dtype", model.dtype},
      {"model", model_json(model)},
      {"data",
       {{"kind", "randn"},
        {"samples", kModelSteps * model.world_size},
        {"features", 1},
        {"targets", 1}}},
      {"loss", {{"kind", "mse"}}},
      {"optimizer", {{"kind", "sgd"}, {"lr", 0.01}}},
      {"compute", {{"kind", "emulated"}, {"profile", kProgramProfile}}},
      {"reducer",
       {{"kind", "c10d"}, {"bucket_cap_mb", cap_mb}, {"first_bucket_mb", mib_of(first_bucket)}}},
      {"communicator", {{"kind", "c10d"}}},
      {"lanes", {"replica"}},
      {"expect", {{"verdict", "pass"}}}};
}

LayerProfile profile_of(const ProgramModel& model) {
  LayerProfile profile;
  profile.model = model_json(model).dump();
  profile.dtype = model.dtype;
  profile.sample = {1};
  profile.layers = model.layers;
  return profile;
}

Expected<RunPlan> plan_at(const std::string& folder, double cap_mb, int64_t first_bucket) {
  SuiteOptions options;
  options.sets = {fmt::format("/reducer/bucket_cap_mb={}", cap_mb),
                  fmt::format("/reducer/first_bucket_mb={}", mib_of(first_bucket))};
  const auto file = load_scenario_file(folder + "/" + kProgramScenario, options);
  if (!file) return file.errors();
  auto plans = make_plans(file.value());
  if (!plans) return plans.errors();
  return std::move(plans.value().front());
}

}  // namespace

std::string why_not_simulated(const std::vector<TracedProgram>& runs) {
  if (runs.empty()) return "no run was traced";
  for (const TracedProgram& run : runs) {
    std::vector<const ProgramTrace*> traces;
    for (const ProgramTimes& rank : run.ranks)
      traces.push_back(rank.trace ? &*rank.trace : nullptr);
    if (std::string why = why_unfit(traces); !why.empty()) return why;
    if (traces[0]->elements != runs[0].ranks[0].trace->elements)
      return "the parameters of one run are not those of another";
    if (traces[0]->order != runs[0].ranks[0].trace->order)
      return "gradients come in another order in every run";
  }
  return "";
}

Expected<ProgramModel> program_model(const std::vector<const TracedProgram*>& runs,
                                     const std::vector<std::string>& command, int64_t cores) {
  StepSamples samples(*runs[0]);
  for (const TracedProgram* run : runs)
    if (!samples.add(*run))
      return option_error(fmt::format(
          "with {} MiB the buckets do not follow the order of the first backward", run->cap_mb));
  ProgramModel model;
  model.world_size = static_cast<int64_t>(runs[0]->ranks.size());
  for (const std::string& word : command)
    model.command += (model.command.empty() ? "" : " ") + shell_word(word);
  model.command = printable(model.command);
  model.dtype = simulated_dtype(runs[0]->ranks[0].trace->dtypes.front());
  model.sizes = samples.sizes();
  model.layers = samples.layers();
  RunSamples machine = samples.machine();
  std::vector<double> caps;
  for (const TracedProgram* run : runs)
    if (std::find(caps.begin(), caps.end(), run->cap_mb) == caps.end()) caps.push_back(run->cap_mb);
  machine.run = fmt::format("{} ranks, bucket_cap_mb {}", model.world_size, fmt::join(caps, ", "));
  auto fit = fit_machine({machine}, cores);
  if (!fit) return fit.errors();
  model.fit = std::move(fit.value());
  return model;
}

int64_t first_bucket_bytes(const std::vector<TracedProgram>& runs, double cap_mb) {
  for (const TracedProgram& run : runs)
    if (run.cap_mb == cap_mb) return run.ranks[0].trace->first_bucket_bytes;
  const ProgramTrace& any = *runs[0].ranks[0].trace;
  return any.first_follows_cap ? bytes_of_mib(cap_mb) : any.first_bucket_bytes;
}

void write_program_model(const ProgramModel& model, double cap_mb, int64_t first_bucket,
                         const std::string& folder) {
  write_atomically(folder + "/" + kProgramScenario,
                   to_text(scenario_json(model, cap_mb, first_bucket)));
  write_atomically(folder + "/" + kProgramProfile, to_text(profile_of(model)));
  write_atomically(folder + "/" + kProgramMachine, to_text(model.fit.machine, as_json(model.fit)));
}

Expected<CapForecast> forecast(const ProgramModel& model, const std::string& folder, double cap_mb,
                               int64_t first_bucket) {
  const auto plan = plan_at(folder, cap_mb, first_bucket);
  if (!plan) return plan.errors();
  const auto planned = job_of_plan(plan.value(), model.fit.machine);
  if (!planned) return planned.errors();
  const auto run = simulate(planned.value().job, {});
  if (!run) return run.errors();
  CapForecast made{cap_mb, {}, numbers_of(planned.value().job, run.value()).step_ms};
  for (const BucketWork& bucket : planned.value().job.settled)
    made.bucket_bytes.push_back(bucket.bytes);
  return made;
}

}  // namespace lockstep
