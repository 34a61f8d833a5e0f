#pragma once

#include <string>
#include <vector>

#include "sim/plan/plan.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {

using Strings = std::vector<std::string>;

// The plan of kScenario with these --set.
inline Expected<RunPlan> plan_of(const Strings& sets) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", kScenario), {sets, {}});
  if (!file) return file.errors();
  return make_plan(file.value().combinations[0].scenario);
}

// "/pointer: message; expected this", a line each; empty where there is a plan.
inline std::string errors_of(const Strings& sets) {
  std::string all;
  const auto plan = plan_of(sets);
  if (plan) return all;
  for (const InputError& error : plan.errors())
    all += (all.empty() ? "" : "\n") + error.pointer + ": " + error.message + "; expected " +
           error.allowed;
  return all;
}

}  // namespace lockstep
