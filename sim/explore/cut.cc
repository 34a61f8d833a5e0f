#include "sim/explore/cut.h"

#include <algorithm>

namespace lockstep {
namespace {

class ExploreCheck {
 public:
  explicit ExploreCheck(const RunPlan& plan) : s_(plan.scenario), file_(plan.file) {}

  InputErrors run() {
    const std::string& kind = s_.reducer.kind;
    const bool reduces = kind == "bucketed" || kind == "c10d" || kind == "flat" ||
                         kind == "per_parameter" || kind == "manual";
    need(reduces, "/reducer/kind", "explore does not know reducer \"" + kind + "\"",
         "bucketed, c10d, flat, per_parameter or manual");
    // Its first step waits inside LibTorch, outside of a backward.
    need(kind != "c10d" || !s_.reducer.options.flag("static_graph"), "/reducer/static_graph",
         "explore does not know a static graph of c10d", "false");
    need(s_.world_size >= 2, "/world_size", "one rank has no schedules", "an integer >= 2");
    need(s_.world_size <= kRanksMax, "/world_size", "explore runs few ranks",
         "an integer <= " + std::to_string(kRanksMax));
    need(s_.device == "cpu", "/device", "explore runs on the cpu", "\"cpu\"");
    need(!s_.join_divide_by, "/join", "explore knows no ranks without batches", "no join");
    need(s_.faults.empty(), "/faults", "explore has neither time nor processes", "[]");
    off("/optimizer_sharding/kind", s_.optimizer_sharding);
    off("/loss_scaling/kind", s_.loss_scaling);
    off("/model_averaging/kind", s_.model_averaging);
    off("/checkpoint/kind", s_.checkpoint);
    for (size_t i = 0; i < s_.mutants.size(); ++i)
      need(is_race(s_.mutants[i].kind), "/mutants/" + std::to_string(i) + "/kind",
           "explore does not know mutant \"" + s_.mutants[i].kind + "\"",
           "skip_wait, reuse_buffer or unordered_launch");
    return std::move(errors_);
  }

 private:
  static constexpr int64_t kRanksMax = 64;

  static bool is_race(const std::string& kind) {
    return kind == "skip_wait" || kind == "reuse_buffer" || kind == "unordered_launch";
  }
  void off(const char* pointer, const Part& part) {
    need(part.kind == "none", pointer, "explore does not know \"" + part.kind + "\"", "\"none\"");
  }
  void need(bool good, std::string pointer, std::string message, std::string allowed) {
    if (good) return;
    InputError error;
    error.file = file_;
    error.pointer = std::move(pointer);
    error.message = std::move(message);
    error.allowed = std::move(allowed);
    errors_.push_back(std::move(error));
  }

  const Scenario& s_;
  const std::string& file_;
  InputErrors errors_;
};

Expected<RunPlan> planned(const RunPlan& from, const Scenario& scenario) {
  auto plan = make_plan(scenario);
  if (!plan) return plan.errors();
  plan.value().set = from.set;
  plan.value().file = from.file;
  return plan;
}

// As many samples a rank and step, and as many batches, as before.
bool keep_ranks(int64_t ranks, Scenario* scenario) {
  const int64_t before = scenario->batch_size;
  if (before % scenario->world_size != 0) return false;
  scenario->batch_size = before / scenario->world_size * ranks;
  scenario->world_size = ranks;
  Options& data = scenario->data.options;
  if (!data.has("samples")) return true;
  const int64_t samples = data.integer("samples");
  if (samples % before != 0) return false;
  data.set("samples", samples / before * scenario->batch_size);
  return true;
}

}  // namespace

Expected<RunPlan> explorable(const RunPlan& plan) {
  InputErrors errors = ExploreCheck(plan).run();
  if (!errors.empty()) return errors;
  Scenario scenario = plan.scenario;
  Part local{"local", {}};
  local.options.set("algorithm", scenario.communicator.options.text("algorithm"));
  scenario.communicator = std::move(local);
  scenario.compute = Part{"real", {}};
  scenario.lanes = {"replica", "replay"};
  scenario.golden.reset();
  for (Expectation& expected : scenario.expect) {  // not of lanes that are not looked at
    Expectation kept;
    kept.libtorch = expected.libtorch;
    kept.verdict = expected.verdict;
    kept.outcome = expected.outcome;
    expected = std::move(kept);
  }
  return planned(plan, scenario);
}

std::optional<RunPlan> cut_down(const RunPlan& plan, const ExploreCase& to,
                                const std::vector<std::string>& parameters) {
  Scenario scenario = plan.scenario;
  if (to.world_size != scenario.world_size && !keep_ranks(to.world_size, &scenario))
    return std::nullopt;
  scenario.steps = to.steps;
  for (MutantSpec& mutant : scenario.mutants)
    if (mutant.rank.value_or(0) >= to.world_size || mutant.step.value_or(1) > to.steps)
      return std::nullopt;
  for (const std::string& name : parameters)
    if (std::find(to.parameters.begin(), to.parameters.end(), name) == to.parameters.end())
      scenario.frozen.push_back(name);
  auto cut = planned(plan, scenario);
  if (!cut) return std::nullopt;
  return std::move(cut.value());
}

}  // namespace lockstep
