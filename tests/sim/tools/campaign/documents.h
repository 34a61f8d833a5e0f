#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sim/plan/plan.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {

// What is wrong with a drawn document as a scenario file, read and planned; nothing: "".
inline std::string errors_of(const nlohmann::ordered_json& document) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("case.json", document.dump(2)), {});
  std::string text;
  if (!file) {
    for (const InputError& error : file.errors()) text += to_text(error) + "\n";
    return text;
  }
  const auto plans = make_plans(file.value());
  if (!plans)
    for (const InputError& error : plans.errors()) text += to_text(error) + "\n";
  return text;
}

}  // namespace lockstep
