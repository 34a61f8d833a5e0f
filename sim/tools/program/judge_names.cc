#include "sim/tools/program/judge_names.h"

#include <algorithm>

namespace lockstep {
namespace {

using Names = std::vector<std::string>;

// What stands before each name of `longer` that `shorter` has without it; empty: no one beginning.
std::string beginning(const Names& longer, const Names& shorter) {
  if (longer.empty() || longer.size() != shorter.size() || longer[0].size() <= shorter[0].size())
    return "";
  const std::string found = longer[0].substr(0, longer[0].size() - shorter[0].size());
  for (size_t i = 0; i < longer.size(); ++i)
    if (longer[i] != found + shorter[i]) return "";
  return found.ends_with('.') ? found : "";
}

// "task." + "0" is "task.0"; the module itself has no name where it is the outermost one.
std::string without(const std::string& module, const std::string& beginning) {
  if (module.starts_with(beginning)) return module.substr(beginning.size());
  return module + "." == beginning ? "" : module;
}

std::string within(const std::string& module, const std::string& beginning) {
  return module.empty() ? beginning.substr(0, beginning.size() - 1) : beginning + module;
}

}  // namespace

std::optional<ProgramRank> with_names_of(const std::vector<ProgramRank>& ranks,
                                         const ProgramRank& one) {
  const size_t steps = std::min(ranks[0].steps.size(), one.steps.size());
  std::optional<ProgramRank> found;
  for (size_t step = 0; step < steps; ++step) {
    const Names &own = one.steps[step].names, &due = ranks[0].steps[step].names;
    if (own == due || (beginning(own, due).empty() && beginning(due, own).empty())) continue;
    if (!found) found = one;
    found->steps[step].names = due;
  }
  return found;
}

void take_names_of(const ProgramStep& rank_step, const ProgramStep& one_step, DrillRank* one) {
  const std::string more = beginning(one_step.names, rank_step.names);
  const std::string less = more.empty() ? beginning(rank_step.names, one_step.names) : "";
  if (more.empty() && less.empty()) return;
  for (DrillCall& call : one->calls)
    call.module = more.empty() ? within(call.module, less) : without(call.module, more);
  for (DrillParameter& parameter : one->parameters)
    parameter.name = more.empty() ? less + parameter.name : without(parameter.name, more);
}

}  // namespace lockstep
