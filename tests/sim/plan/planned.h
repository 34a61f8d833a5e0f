#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/plan/plan.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {

using Strings = std::vector<std::string>;

// The plan of this scenario with these --set.
inline Expected<RunPlan> plan_of(const Strings& sets, std::string_view text = kScenario) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", text), {sets, {}});
  if (!file) return file.errors();
  return make_plan(file.value().combinations[0].scenario);
}

inline RunPlan planned(const Strings& sets) {
  auto plan = plan_of(sets);
  EXPECT_TRUE(plan) << to_text(plan.errors()[0]);
  return plan ? std::move(plan.value()) : RunPlan{};
}

// "/pointer: message; expected this", a line each; empty where there is a plan.
inline std::string errors_of(const Strings& sets, std::string_view text = kScenario) {
  std::string all;
  const auto plan = plan_of(sets, text);
  if (plan) return all;
  for (const InputError& error : plan.errors())
    all += (all.empty() ? "" : "\n") + error.pointer + ": " + error.message +
           (error.allowed.empty() ? "" : "; expected " + error.allowed);
  return all;
}

// "/pointer: this", a line each.
inline std::string allowed_of(const Strings& sets) {
  std::string all;
  const auto plan = plan_of(sets);
  if (plan) return all;
  for (const InputError& error : plan.errors())
    all += (all.empty() ? "" : "\n") + error.pointer +
           (error.allowed.empty() ? "" : ": " + error.allowed);
  return all;
}

}  // namespace lockstep
