#include "sim/cli/simulate_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "reducer/bucket.h"
#include "reducer/shard_tree.h"
#include "scenarios/base/text.h"
#include "sim/cli/execution.h"
#include "sim/cli/simulate.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/units_of_plan.h"
#include "sim/plan/bucket_layout.h"

namespace lockstep {
namespace {

// At most so many rows for a range of caps: the ones that are furthest apart.
constexpr size_t kMostCaps = 60;

InputError refused_axis(const std::string& words, const std::string& why) {
  return option_error(
      fmt::format("--predict {}: {}", words, why),
      fmt::format("caps=A..B or caps=A,B,C in MiB, worlds=A..B or worlds=A,B,C up to {}, with a "
                  "comma between",
                  kMostRanks));
}

// Every part, the empty ones too: nothing that was written is left unread.
std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts = {""};
  for (const char c : text)
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// "caps=1,4,worlds=2": what has no name is one more value of the axis before it, as behind ";".
std::vector<std::string> axes_of(const std::string& words) {
  std::vector<std::string> axes;
  for (const std::string& part : parts_of(words, ',')) {
    if (axes.empty() || part.find('=') != std::string::npos)
      axes.push_back(part);
    else
      axes.back() += ";" + part;
  }
  return axes;
}

struct Axis {
  std::vector<double> values;
  bool range = false;  // of two values
};

std::optional<Axis> axis_of(const std::string& text) {
  Axis axis;
  const size_t dots = text.find("..");
  std::vector<std::string> words;
  if (dots != std::string::npos) {
    axis.range = true;
    words = {text.substr(0, dots), text.substr(dots + 2)};
  } else {
    words = parts_of(text, ';');
  }
  for (const std::string& word : words) {
    const auto value = number_in<double>(word);
    if (!value) return std::nullopt;
    axis.values.push_back(*value);
  }
  if (axis.range && axis.values[0] > axis.values[1]) return std::nullopt;
  return axis;
}

std::vector<double> thinned(const std::vector<double>& caps) {
  std::vector<double> some;
  for (size_t i = 0; i < kMostCaps; ++i)
    some.push_back(caps[i * (caps.size() - 1) / (kMostCaps - 1)]);
  return some;
}

// Of a range every distinct layout, and the plan's own cap, with which the others are compared.
std::vector<double> caps_in(const Axis& axis, const RunPlan& plan) {
  if (!axis.range) return axis.values;
  std::vector<double> caps;
  for (const double cap : caps_of_distinct_layouts(plan))
    if (cap >= axis.values[0] && cap <= axis.values[1]) caps.push_back(cap);
  if (caps.size() > kMostCaps) caps = thinned(caps);
  const double own = plan.scenario.reducer.options.number("bucket_cap_mb");
  const bool listed = std::find(caps.begin(), caps.end(), own) != caps.end();
  if (!listed && own >= axis.values[0] && own <= axis.values[1]) caps.push_back(own);
  std::sort(caps.begin(), caps.end());
  return caps;
}

std::vector<int64_t> worlds_in(const Axis& axis) {
  std::vector<int64_t> worlds;
  if (!axis.range) {
    for (const double value : axis.values) worlds.push_back(static_cast<int64_t>(value));
    return worlds;
  }
  for (auto world = static_cast<int64_t>(axis.values[0]);
       world <= static_cast<int64_t>(axis.values[1]); world *= 2)
    worlds.push_back(world);
  return worlds;
}

bool are_worlds(const Axis& axis) {
  return std::all_of(axis.values.begin(), axis.values.end(), [](double value) {
    return value >= 1 && value <= static_cast<double>(kMostRanks) && value == std::floor(value);
  });
}

bool are_caps(const Axis& axis) {
  return std::all_of(axis.values.begin(), axis.values.end(), [](double value) {
    return value > 0 && value <= 1e6 && bytes_of_mib(value) > 0;
  });
}

bool has_twice(const Axis& axis) {
  const std::set<double> values(axis.values.begin(), axis.values.end());
  return !axis.range && values.size() < axis.values.size();
}

// A whole number of at least 1.
std::optional<int64_t> count_of(const std::string& text) {
  const auto value = number_in<double>(text);
  if (!value || *value < 1 || *value > static_cast<double>(kMostSteps) ||
      *value != std::floor(*value))
    return std::nullopt;
  return static_cast<int64_t>(*value);
}

}  // namespace

Expected<std::vector<Averaging>> averaging_of(const std::string& words) {
  std::vector<Averaging> levels;
  for (const std::string& part : parts_of(words, ',')) {
    const size_t colon = part.find(':');
    const auto ranks = count_of(part.substr(0, colon));
    const auto period =
        colon == std::string::npos ? std::nullopt : count_of(part.substr(colon + 1));
    const bool in_order = levels.empty() || (ranks && *ranks > levels.back().ranks);
    if (!ranks || !period || !in_order) {
      return option_error(fmt::format("--average {}: \"{}\" is no level", words, part),
                          "RANKS:PERIOD of each level, smaller groups first, with commas between");
    }
    levels.push_back({*ranks, *period, 0});
  }
  return levels;
}

Expected<PredictAxes> predict_axes(const std::string& words, const RunPlan& plan) {
  PredictAxes axes;
  std::set<std::string> names;
  for (const std::string& part : axes_of(words)) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const auto axis = equals == std::string::npos ? std::nullopt : axis_of(part.substr(equals + 1));
    if (!axis) return refused_axis(words, fmt::format("\"{}\" is no axis", part));
    if (!names.insert(name).second)
      return refused_axis(words, fmt::format("{} stands there twice", name));
    if (has_twice(*axis)) return refused_axis(words, fmt::format("\"{}\" has a value twice", part));
    if (name == "caps") {
      if (!are_caps(*axis)) return refused_axis(words, "caps out of range");
      if (!has_cap(plan)) return refused_axis(words, "the scenario's reducer has no cap");
      axes.caps_mb = caps_in(*axis, plan);
      if (axes.caps_mb.empty()) return refused_axis(words, "no layout lies in these caps");
    } else if (name == "worlds") {
      if (!are_worlds(*axis)) return refused_axis(words, "worlds out of range");
      axes.worlds = worlds_in(*axis);
    } else {
      return refused_axis(words, fmt::format("\"{}\" is no axis", name));
    }
  }
  return axes;
}

namespace {

std::string always(const SimulatedWith&) { return ""; }

std::string one_run(const SimulatedWith& with) {
  return with.verb.predict.empty() ? "" : "--predict tells many runs, none of them rank by rank";
}

constexpr const char* kMeasured = "collectives take what was measured (tables)";

bool has_tables(const SimulatedWith& with) { return !with.machine.cost.tables.empty(); }

template <class Matches>
bool any_plan(const SimulatedWith& with, Matches matches) {
  return std::any_of(with.plans.begin(), with.plans.end(), matches);
}

// Buckets of virtual shards are exchanged, whatever the algorithm of all-reduces, but for those of
// two ranks with one addition.
bool exchanges_parts(const RunPlan& plan, int64_t ranks) {
  return has_virtual_shards(plan.scenario) &&
         !is_one_addition(ranks, most_roots(shards_on(plan.scenario, ranks), ranks));
}

bool all_reduces(const SimulatedWith& with, const RunPlan& plan) {
  return std::any_of(with.worlds.begin(), with.worlds.end(),
                     [&](int64_t ranks) { return !exchanges_parts(plan, ranks); });
}

bool has_collectives_of(const SimulatedWith& with, const RunPlan& plan, Operation operation) {
  if (has_virtual_shards(plan.scenario))
    return operation == Operation::all_to_all || operation == Operation::all_gather ||
           (operation == Operation::all_reduce && all_reduces(with, plan));
  if (holds_parts(plan.scenario))
    return operation == Operation::reduce_scatter || operation == Operation::all_gather;
  return operation == Operation::all_reduce;
}

bool is_hierarchical(const SimulatedWith& with) {
  return any_plan(with, [&](const RunPlan& plan) {
    return all_reduces(with, plan) &&
           algorithm_of(plan.scenario, with.machine) == Algorithm::hierarchical;
  });
}

std::string needs_ranks(const SimulatedWith& with) {
  const bool alone = *std::max_element(with.worlds.begin(), with.worlds.end()) == 1;
  return alone ? "one rank sends nothing" : "";
}

std::string needs_no_table(const SimulatedWith& with) {
  if (has_tables(with)) return kMeasured;
  return needs_ranks(with);
}

std::string algorithm(const SimulatedWith& with) {
  if (!any_plan(with, [&](const RunPlan& plan) { return all_reduces(with, plan); }))
    return "reducer invariant has no all-reduce";
  return needs_no_table(with);
}

// Of each operation that was measured some run must have one.
std::string collectives(const SimulatedWith& with) {
  for (const CostModel::Table& table : with.machine.cost.tables) {
    if (!any_plan(with, [&](const RunPlan& plan) {
          return has_collectives_of(with, plan, table.operation);
        }))
      return fmt::format("no run has an {}", to_word(table.operation));
  }
  return needs_ranks(with);
}

std::string link(const SimulatedWith& with) {
  if (has_tables(with)) return kMeasured;
  if (is_hierarchical(with) && with.machine.cost.ranks_per_host == 1)
    return "with one rank a host only what is across hosts counts (--across-...)";
  return needs_ranks(with);
}

// Does any collective take the time of another link between its ranks, or another one's?
bool link_differs(const SimulatedWith& with, const CostModel& other) {
  CostModel cost = with.machine.cost, changed = other;
  for (const RunPlan& plan : with.plans)
    for (const int64_t ranks : with.worlds) {
      const bool exchanges = exchanges_parts(plan, ranks);
      cost.algorithm = changed.algorithm =
          exchanges ? Algorithm::ring : algorithm_of(plan.scenario, with.machine);
      const bool both = exchanges || cost.algorithm == Algorithm::hierarchical;
      if (both && goes_across(cost, ranks)) return true;
      if (!(flat_link(cost_of_ranks(cost, ranks), ranks) ==
            flat_link(cost_of_ranks(changed, ranks), ranks)))
        return true;
    }
  return false;
}

// `changed`: the machine with nothing said of what the option says.
std::string across(const SimulatedWith& with, const CostModel& changed) {
  if (has_tables(with)) return kMeasured;
  if (link_differs(with, changed)) return "";
  const int64_t inside = with.machine.cost.ranks_per_host;
  const int64_t most = *std::max_element(with.worlds.begin(), with.worlds.end());
  if (inside == 1) return "no hosts are told apart without --ranks-per-host";
  if (most <= inside) return fmt::format("all ranks are on one host of {}", inside);
  return "of a link within a host and one between them the slower counts, which is the former";
}

std::string across_latency(const SimulatedWith& with) {
  CostModel changed = with.machine.cost;
  changed.across.alpha_ns = 0;
  return across(with, changed);
}

std::string across_bandwidth(const SimulatedWith& with) {
  CostModel changed = with.machine.cost;
  changed.across.beta_fs_per_byte = 0;
  return across(with, changed);
}

std::string hosts(const SimulatedWith& with) {
  const CostModel& cost = with.machine.cost;
  if (with.verb.mtbf_hours) return "";
  if (has_tables(with)) return kMeasured;
  if (shares_cores(cost) || is_hierarchical(with)) return needs_ranks(with);
  CostModel changed = cost;
  changed.ranks_per_host = 1;
  if (link_differs(with, changed)) return "";
  return "every collective takes what it takes without it: of a link within a host and one between "
         "them the slower counts, and here that is the former, or the only one";
}

std::string real_compute(const SimulatedWith& with) {
  const bool real =
      any_plan(with, [](const RunPlan& plan) { return plan.scenario.compute.kind == "real"; });
  return real ? "" : "compute is emulated: the scenario says how long it takes";
}

std::string world(const SimulatedWith& with) {
  return with.verb.predict.find("worlds=") == std::string::npos
             ? ""
             : "--predict says numbers of ranks itself";
}

std::string long_run(const SimulatedWith& with) {
  return with.verb.mtbf_hours ? "" : "without --mtbf-hours no host fails";
}

#define LOCKSTEP_GIVEN(member) [](const SimulateVerb& verb) { return verb.member.has_value(); }
#define LOCKSTEP_SAID(member) [](const SimulateVerb& verb) { return !verb.member.empty(); }

}  // namespace

const std::vector<OptionUse>& option_uses() {
  static const std::vector<OptionUse> kUses = {
      {"--world-size", LOCKSTEP_GIVEN(ranks), world},
      {"--steps", LOCKSTEP_GIVEN(steps), always},
      {"--predict", LOCKSTEP_SAID(predict), always},
      {"--average", LOCKSTEP_SAID(average), always},
      {"--engine", LOCKSTEP_SAID(engine), always},
      {"--threads", [](const SimulateVerb& verb) { return verb.threads > 0; }, always},
      {"--machine", LOCKSTEP_SAID(machine), always},
      {"--collectives", LOCKSTEP_SAID(collectives), collectives},
      {"--algorithm", LOCKSTEP_SAID(algorithm), algorithm},
      {"--latency-us", LOCKSTEP_GIVEN(latency_us), link},
      {"--bandwidth-mb-per-s", LOCKSTEP_GIVEN(bandwidth_mb_per_s), link},
      {"--ranks-per-host", LOCKSTEP_GIVEN(ranks_per_host), hosts},
      {"--across-latency-us", LOCKSTEP_GIVEN(across_latency_us), across_latency},
      {"--across-bandwidth-mb-per-s", LOCKSTEP_GIVEN(across_bandwidth_mb_per_s), across_bandwidth},
      {"--channels", LOCKSTEP_GIVEN(channels), needs_no_table},
      {"--overlap-slowdown", LOCKSTEP_GIVEN(overlap_slowdown), needs_ranks},
      {"--comm-slowdown", LOCKSTEP_GIVEN(comm_slowdown), needs_ranks},
      {"--forward-ms", LOCKSTEP_GIVEN(forward_ms), real_compute},
      {"--backward-ms", LOCKSTEP_GIVEN(backward_ms), real_compute},
      {"--noise", LOCKSTEP_SAID(noise), always},
      {"--mtbf-hours", LOCKSTEP_GIVEN(mtbf_hours), always},
      {"--work-hours", LOCKSTEP_GIVEN(work_hours), long_run},
      {"--checkpoint-s", LOCKSTEP_GIVEN(checkpoint_s), long_run},
      {"--checkpoint-every-s", LOCKSTEP_GIVEN(checkpoint_every_s), long_run},
      {"--restart-s", LOCKSTEP_GIVEN(restart_s), long_run},
      {"--json", LOCKSTEP_SAID(json), always},
      {"--html", LOCKSTEP_SAID(html), always},
      {"--trace", LOCKSTEP_SAID(trace.path), one_run},
      {"--trace-kind", [](const SimulateVerb& verb) { return verb.trace.kind != "kineto"; },
       always},
      {"--svg", LOCKSTEP_SAID(svg), always},
      {"--out", LOCKSTEP_SAID(out), one_run},
  };
  return kUses;
}

#undef LOCKSTEP_GIVEN
#undef LOCKSTEP_SAID

InputErrors unused_options(const SimulateVerb& verb, const MachineModel& machine,
                           const std::vector<RunPlan>& plans) {
  SimulatedWith with{verb, machine, plans, {}};
  const auto axes = verb.predict.empty() ? Expected<PredictAxes>(PredictAxes())
                                         : predict_axes(verb.predict, plans.front());
  if (!axes) return axes.errors();
  with.worlds = axes.value().worlds;
  if (with.worlds.empty() && verb.ranks) with.worlds = {*verb.ranks};
  if (with.worlds.empty())
    for (const RunPlan& plan : plans) with.worlds.push_back(ranks_of(plan.scenario));
  InputErrors errors;
  for (const OptionUse& use : option_uses()) {
    if (!use.given(verb)) continue;
    if (const std::string why = use.why_not(with); !why.empty())
      errors.push_back(option_error(fmt::format("{} changes nothing here: {}", use.name, why),
                                    "to leave it out"));
  }
  return errors;
}

}  // namespace lockstep
