#include "sim/cli/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/base/clock.h"
#include "scenarios/base/text.h"
#include "sim/cli/conclude.h"
#include "sim/cli/output_files.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/cli/simulate_uses.h"
#include "sim/des/simulate.h"
#include "sim/report/document.h"
#include "sim/report/simulate_svg.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

void append_run(const InputErrors& more, InputErrors* errors) {
  errors->insert(errors->end(), more.begin(), more.end());
}

// What can be told before anything is simulated.
InputErrors option_errors(const SimulateVerb& verb, size_t runs) {
  InputErrors errors;
  if (!verb.engine.empty())
    if (const auto engine = engine_of(verb.engine); !engine)
      errors.push_back(option_error("--engine: " + engine.errors().front().message,
                                    engine.errors().front().allowed));
  if (!verb.average.empty())
    if (const auto levels = averaging_of(verb.average); !levels)
      append_run(levels.errors(), &errors);
  for (const auto& [name, path] :
       {std::pair("--json", &verb.json), {"--trace", &verb.trace}, {"--svg", &verb.svg}})
    check_output(name, *path, &errors);
  append_run(long_run_errors(verb), &errors);
  const bool of_one =
      !verb.trace.empty() || !verb.svg.empty() || !verb.out.empty() || !verb.predict.empty();
  if (runs > 1 && of_one)
    errors.push_back(option_error(fmt::format(
        "--trace, --svg, --out and --predict take one run, but {} are selected", runs)));
  return errors;
}

std::vector<RunPlan> plans_of(const std::vector<SelectedFile>& files) {
  std::vector<RunPlan> plans;
  for (const SelectedFile& file : files)
    plans.insert(plans.end(), file.plans.begin(), file.plans.end());
  return plans;
}

// What a plan says of its scenario's keys, with their lines.
InputErrors located(InputErrors errors, const std::vector<SelectedFile>& files) {
  for (InputError& error : errors)
    for (const SelectedFile& file : files) {
      if (error.pointer.empty() || error.file != file.path || file.plans.empty()) continue;
      locate(file.places, file.plans.front().set, &error);
      break;
    }
  return errors;
}

InputErrors fill_lines(const SimulateVerb& verb, const MachineModel& machine,
                       const std::vector<RunPlan>& plans, SimulateDocument* document) {
  if (verb.predict.empty()) {
    auto lines = simulate_plans(verb, machine, plans);
    if (!lines) return lines.errors();
    document->lines = std::move(lines.value());
    return {};
  }
  auto predicted = predict(verb, machine, plans.front());
  if (!predicted) return predicted.errors();
  document->prediction = true;
  document->lines = std::move(predicted.value().lines);
  document->recommended_cap_mb = predicted.value().best_cap_mb;
  document->recommendation = predicted.value().recommendation;
  return {};
}

std::string answer_of(const SimulateDocument& document) {
  int64_t steps = 0, unmet = 0;
  for (const SimulatedLine& line : document.lines) {
    steps += line.numbers.steps;
    if (line.judged && line.judged->met == false) ++unmet;
  }
  const auto runs = static_cast<int64_t>(document.lines.size());
  const std::string what = fmt::format("{} {}, {} steps in {:.3g} s", runs, plural(runs, "run"),
                                       grouped(steps), document.elapsed_s);
  if (unmet > 0) return fmt::format("not as expected: {} of {}; exit 1", unmet, what);
  return "simulated: " + what;
}

int report_simulation(const SimulateVerb& verb, SimulateDocument* document) {
  document->answer = answer_of(*document);
  for (const SimulatedLine& line : document->lines)
    if (line.judged && line.judged->met == false) document->exit_code = kExitFail;
  int code = write_output("--json", verb.json, document->exit_code,
                          [&] { return to_text(as_json(*document)); });
  if (!verb.svg.empty() && document->prediction)
    code = write_output("--svg", verb.svg, code, [&] { return simulate_svg(*document); });
  const Style style(wants_color(verb.color, STDOUT_FILENO));
  const std::string text = verb.quiet ? document->answer + "\n" : to_text(*document, style);
  return print_result(text, code);
}

}  // namespace

int simulate_verb(const SimulateVerb& verb) {
  auto files = select(verb.selection);
  const auto machine = machine_of(verb);
  InputErrors errors = files ? InputErrors() : files.errors();
  if (!machine) append_run(machine.errors(), &errors);
  if (!errors.empty()) return bad_input(errors, verb.json);
  const std::vector<RunPlan> plans = plans_of(files.value());
  errors = option_errors(verb, plans.size());
  if (!errors.empty()) return bad_input(errors, verb.json);
  if (plans.empty())
    return nothing_selected(fmt::format("no run contains \"{}\"", printable(verb.selection.filter)),
                            "simulate", verb.json, {.junit = "", .annotations = "none"});
  errors = unused_options(verb, machine.value(), plans);
  if (!errors.empty()) return bad_input(errors, verb.json);
  SimulateDocument document;
  document.seed = plans.front().scenario.seed;
  document.machine = this_machine();
  document.simulated = words_of(verb, machine.value());
  const int64_t start_ns = now_ns();
  try {
    errors = located(fill_lines(verb, machine.value(), plans, &document), files.value());
  } catch (const std::exception& error) {  // records or a trace that could not be written
    errors = {option_error(error.what())};
  }
  if (!errors.empty()) return bad_input(errors, verb.json);
  document.elapsed_s = static_cast<double>(now_ns() - start_ns) * 1e-9;
  return report_simulation(verb, &document);
}

}  // namespace lockstep
