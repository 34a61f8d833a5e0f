#include "sim/cli/simulate.h"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/base/clock.h"
#include "scenarios/base/text.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/simulate_arguments.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/des/machine_model.h"
#include "sim/des/simulate.h"
#include "sim/report/document.h"
#include "sim/report/simulate_document.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

constexpr double kMostMs = 3'600'000;

class Adder {
 public:
  Adder(CLI::App* verb, const char* group) : verb_(verb), group_(group) {}
  template <class T>
  CLI::Option* text(const char* name, T* value, const std::string& help, const char* form) {
    return verb_->add_option(name, *value, help)->option_text(form)->group(group_);
  }
  void number(const char* name, std::optional<double>* value, const std::string& help,
              const char* form, double least, double most) {
    text(name, value, help, form)->check(between(least, most));
  }
  template <class Integer>
  void integer(const char* name, Integer* value, const std::string& help, const char* form,
               int64_t least, int64_t most) {
    text(name, value, help, form)->check(between(least, most));
  }

 private:
  CLI::App* verb_;
  const char* group_;
};

void add_machine(CLI::App* verb, SimulateVerb* options) {
  Adder add(verb, "On which machines");
  add.text("--machine", &options->machine,
           "What `lockstep calibrate` fitted, or one of " + machine_preset_words() + " (loopback)",
           "FILE|WORD");
  verb->add_option("--collectives", options->collectives,
                   "Collectives as measured, a file for each world size: nccl-tests' output, or "
                   "what lockstep collective --json wrote")
      ->option_text("FILE,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("On which machines");
  add.text("--algorithm", &options->algorithm, "Algorithm of all-reduce (the communicator's)",
           "WORD");
  add.number("--latency-us", &options->latency_us, "Of a message", "US", 0, 1e9);
  add.number("--bandwidth-mb-per-s", &options->bandwidth_mb_per_s, "Of a link, 10^6 bytes", "N",
             1e-3, 1e9);
  add.integer("--ranks-per-host", &options->ranks_per_host, "Ranks that share a host", "N", 1,
              1'000'000);
  add.number("--across-latency-us", &options->across_latency_us, "Between hosts", "US", 0, 1e9);
  add.number("--across-bandwidth-mb-per-s", &options->across_bandwidth_mb_per_s, "Between hosts",
             "N", 1e-3, 1e9);
  add.integer("--channels", &options->channels, "Concurrent collectives (1)", "N", 1, 64);
  add.number("--overlap-slowdown", &options->overlap_slowdown,
             "Fraction by which communication slows compute (0)", "X", 0, 16);
  add.number("--comm-slowdown", &options->comm_slowdown,
             "Fraction by which backward slows communication (0)", "X", 0, 16);
  add.number("--forward-ms", &options->forward_ms, "Forward of real compute (half of backward)",
             "MS", 0, kMostMs);
  add.number("--backward-ms", &options->backward_ms, "Backward of real compute", "MS", 0, kMostMs);
  add.text("--noise", &options->noise,
           "Of compute: normal, uniform, lognormal or exponential with its spread", "normal:0.02");
}

void add_what(CLI::App* verb, SimulateVerb* options) {
  Adder add(verb, "What is simulated");
  add.integer("--world-size", &options->ranks,
              "Number of ranks, each with the work of one in the scenario", "N", 1, 1'000'000);
  add.integer("--steps", &options->steps, "Number of steps", "N", 1, 10'000'000);
  add.text("--predict", &options->predict,
           "A table over caps and world sizes, and which cap is best",
           "caps=1..100,worlds=2..1024");
  add.text("--average", &options->average,
           "Average parameters in groups: RANKS:PERIOD of each level (the scenario's)",
           "8:2,64:16");
  add.text("--engine", &options->engine, "L0 to L4 (the cheapest that is exact)", "WORD");
  add.integer("--threads", &options->threads, "Threads; the result is the same (all cores)", "N", 0,
              1024);
}

void add_failures(CLI::App* verb, SimulateVerb* options) {
  Adder add(verb, "Hosts that fail");
  add.number("--mtbf-hours", &options->mtbf_hours,
             "Mean time between failures of one host: how long does a run of days take?", "H", 1e-3,
             1e8);
  add.number("--work-hours", &options->work_hours,
             "Hours of training without failures (the time of the steps)", "H", 1e-6, 2e5);
  add.number("--checkpoint-s", &options->checkpoint_s, "Seconds per checkpoint", "S", 0, 1e6);
  add.number("--checkpoint-every-s", &options->checkpoint_every_s,
             "Work between two checkpoints (Daly's optimum)", "S", 1e-3, 1e9);
  add.number("--restart-s", &options->restart_s, "From a failure until work goes on", "S", 0, 1e6);
}

}  // namespace

void add_simulate(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<SimulateVerb>();
  CLI::App* verb = app.add_subcommand(
      "simulate", "Run scenarios in virtual time: any number of ranks, no processes.");
  add_selection(verb, &options->selection, true);
  add_what(verb, options.get());
  add_machine(verb, options.get());
  add_failures(verb, options.get());
  Adder add(verb, "Output");
  add.text("--json", &options->json, "Write the result as JSON", "FILE");
  add_html(verb, &options->html);
  add_trace(verb, &options->trace);
  add.text("--svg", &options->svg, "Draw a prediction, or a step of one run", "FILE");
  add.text("--out", &options->out, "Write one run's records there, for lockstep analyze", "FOLDER");
  add.text("--color", &options->color, "When to colour verdicts", "auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->footer(R"(Examples, from the root of the repository
  lockstep simulate scenarios/stragglers/named_compute.json
  lockstep simulate scenarios/sweeps/pytorch_gloo_resnet50.json --predict caps=1..100
  lockstep simulate scenarios/stragglers/emulated_resnet50.json --world-size 10000 \
    --noise normal:0.02 --latency-us 5 --bandwidth-mb-per-s 25000
  lockstep simulate scenarios/stragglers/emulated_resnet50.json --world-size 16384 \
    --ranks-per-host 8 --mtbf-hours 6328 --work-hours 1296 --checkpoint-s 60 --restart-s 600

Exit codes
  0      simulated; the scenarios' expectations of time were met
  1      it did not
  2      bad input, or an output could not be written; nothing was concluded)");
  verb->callback([=] { *action = [=] { return simulate_verb(*options); }; });
}

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
  check_output("--json", verb.json, &errors);
  check_output("--svg", verb.svg, &errors);
  append_run(long_run_errors(verb), &errors);
  const bool of_one =
      !verb.trace.path.empty() || !verb.svg.empty() || !verb.out.empty() || !verb.predict.empty();
  if (runs > 1 && of_one)
    errors.push_back(option_error(fmt::format(
        "--trace, --svg, --out and --predict take one run, but {} are selected", runs)));
  else if (const auto error = trace_error(verb.trace, runs))
    errors.push_back(*error);
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
  document->advice = std::move(predicted.value().advice);
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
  const Style style = style_of(verb.color, STDOUT_FILENO);
  const std::string text = verb.quiet ? document->answer + "\n" : to_text(*document, style);
  code = write_page(verb.html, code, [&] {
    HtmlPage page{"simulate", text, to_text(as_json(*document))};
    for (const SimulatedLine& line : document->lines)
      if (!line.timeline.empty()) page.timelines.push_back(line.timeline);
    return page;
  });
  return print_result(text, code);
}

}  // namespace

// What faults may name: the ranks and steps that are simulated.
Selection selection_of(const SimulateVerb& verb) {
  Selection selection = verb.selection;
  selection.simulated = {verb.ranks.value_or(0), verb.steps.value_or(0), true};
  return selection;
}

int simulate_verb(const SimulateVerb& verb) {
  auto files = select(selection_of(verb));
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
