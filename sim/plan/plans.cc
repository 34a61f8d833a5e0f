#include <fmt/format.h>

#include <map>
#include <tuple>

#include "scenarios/base/text.h"
#include "scenarios/json/pointer.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

std::string set_text(const Combination& combination) {
  std::string text;
  for (const auto& [axis, value] : combination.set)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", printable(axis), value);
  return text;
}

}  // namespace

void locate(const ScenarioFile& file, const std::vector<std::pair<std::string, std::string>>& set,
            InputError* error) {
  std::string pointer = error->pointer;
  for (const auto& [axis, value] : set)
    if (pointer_within(error->pointer, axis)) pointer = pointer_join("/matrix", axis);
  error->file = printable(file.path);
  for (;; pointer.resize(pointer.rfind('/'))) {
    for (const auto& [known, option] : file.options) {
      if (known != pointer) continue;
      error->file = option;
      return;
    }
    for (const auto& [known, at] : file.places) {
      if (known != pointer) continue;
      std::tie(error->line, error->column) = at;
      return;
    }
    if (pointer.empty()) return;
  }
}

Expected<std::vector<RunPlan>> make_plans(const ScenarioFile& file) {
  std::vector<RunPlan> plans;
  plans.reserve(file.combinations.size());
  InputErrors errors;
  std::map<std::pair<std::string, std::string>, bool> seen;
  for (const Combination& combination : file.combinations) {
    auto plan = make_plan(combination.scenario);
    if (plan) {
      plan.value().set = combination.set;
      plan.value().file = file.path;
      plans.push_back(std::move(plan.value()));
      continue;
    }
    for (InputError error : plan.errors()) {
      if (!seen.emplace(std::pair(error.pointer, error.message), true).second) continue;
      locate(file, combination.set, &error);
      const std::string set = set_text(combination);
      if (!set.empty()) error.message += fmt::format(" (with {})", set);
      errors.push_back(std::move(error));
    }
  }
  if (!errors.empty()) return errors;
  return plans;
}

}  // namespace lockstep
