#include "sim/cli/registered_names.h"

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/scenario.h"
#include "sim/cli/worker_program.h"

namespace lockstep {
namespace {

struct NamedPart {
  const char* key;
  Part Scenario::*part;
};
constexpr std::array kNamedParts = {
    NamedPart{"model", &Scenario::model}, NamedPart{"data", &Scenario::data},
    NamedPart{"reducer", &Scenario::reducer}, NamedPart{"comm_hook", &Scenario::comm_hook}};

// What is asked for, and the first file that does.
using Asked = std::map<std::pair<std::string, std::string>, std::string>;

void add(const RunPlan& plan, Asked* asked) {
  for (const NamedPart& named : kNamedParts) {
    const Part& part = plan.scenario.*named.part;
    if (part.kind == "registered")
      asked->emplace(std::pair(named.key, part.options.text("name")), plan.file);
  }
}

InputErrors answer_of(const std::string& worker, const Asked& asked) {
  if (asked.empty()) return {};
  std::vector<std::string> command{worker, "--registered"};
  for (const auto& [what, file] : asked) command.insert(command.end(), {what.first, what.second});
  std::string why;
  const auto problems = json_or_discarded(output_of(command, kWorkerTimeout, &why).value_or(""));
  InputErrors errors;
  if (!problems.is_array() || problems.size() != asked.size()) return errors;
  auto problem = problems.begin();
  for (const auto& [what, file] : asked) {
    const std::string message = problem->is_string() ? problem->get<std::string>() : "";
    ++problem;
    if (message.empty()) continue;
    InputError error;
    error.file = printable(file);
    error.pointer = "/" + what.first + "/name";
    error.message = printable(message);
    errors.push_back(std::move(error));
  }
  return errors;
}

}  // namespace

InputErrors unknown_names(const std::string& worker, const std::vector<const RunPlan*>& plans) {
  Asked asked;
  for (const RunPlan* plan : plans) add(*plan, &asked);
  return answer_of(worker, asked);
}

InputErrors unknown_names(const std::string& worker, const std::vector<SelectedFile>& files) {
  std::vector<const RunPlan*> plans;
  for (const SelectedFile& file : files)
    for (const RunPlan& plan : file.plans) plans.push_back(&plan);
  return unknown_names(worker, plans);
}

}  // namespace lockstep
