#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "scenarios/faults.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class FaultCheck : PartCheck {
 public:
  FaultCheck(const Scenario& scenario, const SimulatedSize& simulated, InputErrors* errors)
      : PartCheck(scenario, errors),
        ranks_(std::max(ranks_of(scenario), simulated.ranks)),
        steps_(std::max(scenario.steps, simulated.steps)) {}

  void run() {
    for (size_t i = 0; i < s_.faults.size(); ++i) {
      at_ = fmt::format("/faults/{}", i);
      fault(s_.faults[i]);
    }
  }

 private:
  void fault(const Fault& fault) {
    for (const char* key : {"rank", "as_rank"})
      if (fault.options.has(key)) rank(key, fault.options.integer(key));
    if (fault.kind == FaultKind::partition) side(fault.options.integers("ranks"));
    steps(fault);
    place(fault);
    duration(fault);
    processes(fault);
    connections(fault);
    const bool of_device = row_of(fault.kind).needs == FaultNeeds::device;
    need(!of_device || s_.device == "cuda" || s_.device == "fake", at_ + "/kind",
         fmt::format("{} is about what a host puts into a device's stream, and the cpu has none",
                     to_word(fault.kind)),
         "stall or slow, or /device \"cuda\"");
    need(fault.kind != FaultKind::launch_stall || s_.compute.kind == "real", at_ + "/kind",
         "launch_stall pauses a host between the layers that it launches, and emulated ones are "
         "timers",
         "slow_layer, or /compute/kind \"real\"");
    if (fault.kind == FaultKind::duplicate_rank)
      need(fault.options.integer("as_rank") != fault.options.integer("rank"), at_ + "/as_rank",
           fmt::format("rank {} is what it says to be", fault.options.integer("rank")),
           "another rank");
    if (fault.kind == FaultKind::wrong_world_size)
      need(fault.options.integer("world_size") != s_.world_size, at_ + "/world_size",
           fmt::format("the world size is {}", s_.world_size), "another number");
  }

  void rank(const std::string& key, int64_t rank) {
    need(rank < ranks_, at_ + "/" + key, fmt::format("there is no rank {}", rank),
         fmt::format("a rank from 0 to {}", ranks_ - 1));
  }

  void side(const std::vector<int64_t>& ranks) {
    for (const int64_t member : ranks) rank("ranks", member);
    need(static_cast<int64_t>(ranks.size()) < s_.world_size, at_ + "/ranks",
         "all ranks are on one side", "fewer ranks than there are");
  }

  void steps(const Fault& fault) {
    for (const char* key : {"step", "last_step"}) {
      if (!fault.options.has(key)) continue;
      const int64_t step = fault.options.integer(key);
      need(step <= steps_, at_ + "/" + key, fmt::format("there is no step {}", step),
           fmt::format("a step from 1 to {}", steps_));
    }
    if (fault.options.has("step") && fault.options.has("last_step"))
      need(fault.options.integer("step") <= fault.options.integer("last_step"), at_ + "/last_step",
           fmt::format("last_step is {}, but step is {}", fault.options.integer("last_step"),
                       fault.options.integer("step")),
           "at least step");
    if (fault.kind == FaultKind::fewer_batches)
      need(fault.options.integer("batches") <= s_.steps, at_ + "/batches",
           fmt::format("there are {} steps", s_.steps), fmt::format("at most {}", s_.steps));
  }

  // One place, and one that this run has.
  void place(const Fault& fault) {
    const bool bucket = fault.options.has("bucket");
    if (bucket && fault.options.has("phase"))
      fail(at_ + "/phase", "both phase and bucket say where it acts", "one of them");
    const auto phase = phase_of(fault);
    if (fault.options.has("step") && (phase == Phase::rendezvous || phase == Phase::construction))
      fail(at_ + "/step", fmt::format("{} is before all steps", to_word(*phase)), "no step");
    if (!fault.options.has("layer")) return;
    const auto manifest = manifest_of(s_.model, s_.dtype);
    if (!manifest) return;
    std::string known;
    for (const TensorSpec& parameter : manifest->parameters) {
      const std::string layer = parameter.name.substr(0, parameter.name.rfind('.'));
      if (layer == fault.options.text("layer")) return;
      if (!known.ends_with(layer)) known += (known.empty() ? "" : ", ") + layer;
    }
    fail(at_ + "/layer", fmt::format("the model has no layer \"{}\"", fault.options.text("layer")),
         known);
  }

  void duration(const Fault& fault) {
    if (!fault.options.has("distribution")) return;
    const std::string& distribution = fault.options.text("distribution");
    const double spread = fault.options.number("spread");
    if (distribution == "uniform" && spread > 1)
      fail(at_ + "/spread", fmt::format("a spread of {} makes durations negative", spread),
           "at most 1 for uniform");
    if (distribution == "pareto" && spread <= 1)
      fail(at_ + "/spread", fmt::format("a shape of {} has no mean", spread),
           "more than 1 for pareto");
  }

  void processes(const Fault& fault) {
    const FaultNeeds needs = row_of(fault.kind).needs;
    const bool needed = needs == FaultNeeds::processes || needs == FaultNeeds::connections;
    need(!needed || s_.communicator.kind != "local", at_ + "/kind",
         fmt::format("{} needs ranks that are processes, but of communicator local they are "
                     "threads of one",
                     to_word(fault.kind)),
         needs == FaultNeeds::connections ? "communicator gloo or c10d"
                                          : "communicator gloo, c10d, shm or hierarchical");
  }

  void connections(const Fault& fault) {
    const std::string& kind = s_.communicator.kind;
    const bool shm = kind == "shm" || kind == "hierarchical";
    need(!shm || row_of(fault.kind).needs != FaultNeeds::connections, at_ + "/kind",
         fmt::format("{} needs connections, but ranks of communicator {} share memory",
                     to_word(fault.kind), kind),
         "communicator gloo or c10d");
    const bool has_link = !shm && kind != "local";
    if (fault.options.has("means"))
      need(has_link || fault.options.text("means") != "veth", at_ + "/means",
           fmt::format("ranks of communicator {} have no links", kind),
           "decorator, or communicator gloo or c10d");
  }

  const int64_t ranks_, steps_;
  std::string at_;
};

}  // namespace

void check_faults(const Scenario& scenario, const SimulatedSize& simulated, InputErrors* errors) {
  FaultCheck(scenario, simulated, errors).run();
}

namespace {

constexpr std::array kNames = {"collective_ms", "construction_ms", "step_ms", "rendezvous_ms",
                               "run_ms"};

void scale(const char* key, double factor, Options* options) {
  if (options->has(key)) options->set(key, options->number(key) * factor);
}

// Of a step, from above where it is given.
int64_t emulated_ms(const Scenario& scenario) {
  const Options& options = scenario.compute.options;
  if (!options.has("forward_ms")) return 0;
  const double forward = options.number("forward_ms");
  const double backward = options.has("backward_ms") ? options.number("backward_ms") : 2 * forward;
  return std::llround((forward + backward) * static_cast<double>(scenario.accumulate_steps));
}

}  // namespace

void scale_times(Scenario* scenario) {
  const double factor = scenario->time_scale;
  if (factor == 1) return;
  Timeouts& t = scenario->timeouts;
  for (int64_t* given :
       {&t.collective_ms, &t.construction_ms, &t.step_ms, &t.rendezvous_ms, &t.run_ms})
    if (*given != 0)
      *given = std::max<int64_t>(1, std::llround(static_cast<double>(*given) * factor));
  for (Fault& fault : scenario->faults) scale("duration_ms", factor, &fault.options);
  for (const char* key : {"forward_ms", "backward_ms"})
    scale(key, factor, &scenario->compute.options);
}

void complete_timeouts(const Scenario& scenario, Timeouts* timeouts, InputErrors* errors) {
  const std::array<int64_t*, 5> values = {&timeouts->collective_ms, &timeouts->construction_ms,
                                          &timeouts->step_ms, &timeouts->rendezvous_ms,
                                          &timeouts->run_ms};
  size_t last_given = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (*values[i] == 0) continue;
    const bool any_before = last_given < i;
    if (any_before && *values[i] < *values[last_given])
      errors->push_back(
          {"", 0, 0, fmt::format("/timeouts/{}", kNames[i]),
           fmt::format("/timeouts/{} is {}, less than /timeouts/{}, which is {}", kNames[i],
                       *values[i], kNames[last_given], *values[last_given]),
           fmt::format("an integer >= {}", *values[last_given])});
    last_given = i;
  }
  // A tenth of a second a step is far more than any shipped model takes by itself.
  const int64_t emulated = 2 * emulated_ms(scenario);
  const std::array<int64_t, 5> defaults = {
      30'000, 60'000, 120'000 + emulated, 120'000,
      std::max<int64_t>(600'000, scenario.steps * (100 + emulated))};
  int64_t least = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t most = INT64_MAX;
    for (size_t j = i + 1; j < values.size(); ++j)
      if (*values[j] != 0) most = std::min(most, *values[j]);
    if (*values[i] == 0) *values[i] = std::min(std::max(defaults[i], least), most);
    least = *values[i];
  }
}

}  // namespace lockstep
