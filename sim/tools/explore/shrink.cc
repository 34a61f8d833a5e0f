#include "sim/tools/explore/shrink.h"

#include <algorithm>

namespace lockstep {
namespace {

class Shrinker {
 public:
  Shrinker(ShrinkLab& lab, ExploreCase from, Script script)
      : lab_(lab), known_{std::move(from), std::move(script)} {}

  Shrunk shrink() {
    fewer(&ExploreCase::steps, 1);
    fewer(&ExploreCase::world_size, 2);
    fewer_parameters();
    search_again();
    fewer_decisions();
    return std::move(known_);
  }

 private:
  bool accept(const ExploreCase& tried) {
    if (lab_.is_late()) return false;
    const auto choices = lab_.search(tried);
    if (!choices) return false;
    known_ = {tried, script_of(*choices)};
    return true;
  }

  // The least value with which the failure is found.
  void fewer(int64_t ExploreCase::*number, int64_t least) {
    const int64_t now = known_.smallest.*number;
    for (int64_t value = least; value < now; ++value) {
      ExploreCase tried = known_.smallest;
      tried.*number = value;
      if (accept(tried)) return;
    }
  }

  void fewer_parameters() {
    for (size_t i = known_.smallest.parameters.size(); i > 0; --i) {
      ExploreCase tried = known_.smallest;
      if (tried.parameters.size() == 1) return;
      tried.parameters.erase(tried.parameters.begin() + static_cast<std::ptrdiff_t>(i - 1));
      accept(tried);
    }
  }

  void search_again() {
    if (lab_.is_late() || known_.script.empty()) return;
    if (const auto choices = lab_.search(known_.smallest))
      if (Script script = script_of(*choices); script.size() < known_.script.size())
        known_.script = std::move(script);
  }

  bool accept(const Script& tried) {
    if (lab_.is_late()) return false;
    const auto choices = lab_.run(known_.smallest, tried);
    if (!choices) return false;
    Script script = script_of(*choices);
    if (script.size() >= known_.script.size()) return false;
    known_.script = std::move(script);
    return true;
  }

  // Whole runs of decisions first, halves of what is left, then one by one until all are needed.
  void fewer_decisions() {
    for (size_t length = std::max<size_t>(1, known_.script.size()); length > 0;) {
      bool any = false;
      for (size_t at = 0; at < known_.script.size();) {
        Script tried = known_.script;
        const auto from = tried.begin() + static_cast<std::ptrdiff_t>(at);
        const size_t count = std::min(length, tried.size() - at);
        tried.erase(from, from + static_cast<std::ptrdiff_t>(count));
        if (accept(tried))
          any = true;
        else
          at += length;
      }
      if (lab_.is_late()) return;
      if (length == 1 && !any) return;
      length = std::max<size_t>(1, length / 2);
    }
  }

  ShrinkLab& lab_;
  Shrunk known_;
};

}  // namespace

Shrunk shrink(ShrinkLab& lab, ExploreCase from, const Script& script) {
  return Shrinker(lab, std::move(from), script).shrink();
}

namespace {

class ExploreCheck {
 public:
  explicit ExploreCheck(const RunPlan& plan) : s_(plan.scenario), file_(plan.file) {}

  InputErrors run() {
    const std::string& kind = s_.reducer.kind;
    const bool reduces = kind == "bucketed" || kind == "c10d" || kind == "flat" ||
                         kind == "per_parameter" || kind == "manual" || has_virtual_shards(s_);
    need(reduces, "/reducer/kind", "explore does not know reducer \"" + kind + "\"",
         "bucketed, c10d, flat, per_parameter, manual or invariant");
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

// As many samples a rank and step, and as many batches, as before. Virtual shards stay what they
// are.
bool keep_ranks(int64_t ranks, Scenario* scenario) {
  if (has_virtual_shards(*scenario)) {
    scenario->world_size = ranks;
    return true;
  }
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
  scenario.lanes = {Lane::replica, has_virtual_shards(scenario) ? Lane::invariant : Lane::replay};
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
