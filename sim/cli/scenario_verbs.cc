#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <system_error>

#include "scenarios/base/text.h"
#include "scenarios/image_files.h"
#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "sim/cli/outputs.h"
#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/report/document.h"
#include "sim/report/text_style.h"

namespace lockstep {

namespace {

// What is looked at, and not executed.
Expected<std::vector<SelectedFile>> looked_at(Selection selection) {
  selection.simulated.only = true;
  return select(selection);
}

}  // namespace

int scenario_check(const Selection& selection) {
  const auto files = looked_at(selection);
  if (!files) return bad_input(files.errors());
  std::string text;
  int64_t runs = 0;
  for (const SelectedFile& file : files.value()) {
    const auto count = static_cast<int64_t>(file.plans.size());
    text += fmt::format("{}: {} {}\n", file.path, grouped(count), plural(count, "run"));
    runs += count;
  }
  const auto count = static_cast<int64_t>(files.value().size());
  text += fmt::format("ok: {} {}, {} {}\n", grouped(count), plural(count, "file"), grouped(runs),
                      plural(runs, "run"));
  return print_result(text, kExitPass);
}

int scenario_list(const Selection& selection) {
  const auto files = looked_at(selection);
  if (!files) return bad_input(files.errors());
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  table.column("file");
  table.column("what");
  for (const SelectedFile& file : files.value())
    table.row({file.name, grouped(static_cast<int64_t>(file.plans.size())), file.path, file.what});
  return print_result(table.text(style_of("never", STDOUT_FILENO)), kExitPass);
}

int scenario_explain(const Selection& selection) {
  const auto files = looked_at(selection);
  if (!files) return bad_input(files.errors());
  std::vector<const RunPlan*> plans;
  for (const SelectedFile& file : files.value())
    for (const RunPlan& plan : file.plans) plans.push_back(&plan);
  if (plans.empty()) {
    print_error(fmt::format("nothing selected: no run contains \"{}\"; exit {}\n", selection.filter,
                            kExitNothing));
    return kExitNothing;
  }
  if (plans.size() == 1) return print_result(to_text(*plans.front()), kExitPass);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const RunPlan* plan : plans) all.push_back(as_json(*plan));
  using Json = nlohmann::ordered_json;
  return print_result(all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", kExitPass);
}

int write_data(const DataOptions& options) {
  const auto files = write_images(options.kind, options.folder, options.samples, options.seed);
  if (!files) {
    InputErrors errors = files.errors();
    for (InputError& error : errors) error.pointer.clear();  // of a scenario: there is none here
    return bad_input(errors);
  }
  std::string text;
  for (const std::string& file : files.value()) text += file + "\n";
  return print_result(text, 0);
}

namespace {

// The one run that is chosen. Its compute does not matter: it may name the profile that is wanted.
Expected<RunPlan> chosen_plan(Selection selection) {
  selection.sets.insert(selection.sets.begin(), R"(/compute={"kind": "real"})");
  auto files = select(selection);
  if (!files) return files.errors();
  std::vector<RunPlan> plans;
  for (SelectedFile& file : files.value())
    plans.insert(plans.end(), file.plans.begin(), file.plans.end());
  if (plans.size() != 1)
    return option_error(fmt::format("{} runs are selected", plans.size()),
                        "one: pin the axes with --set or --filter");
  const Scenario& scenario = plans.front().scenario;
  if (scenario.device == "cuda")
    return option_error("layers are measured on the cpu, for ranks that emulate them there",
                        "--device cpu");
  if (!manifest_of(scenario.model, scenario.dtype))
    return option_error(
        fmt::format("the layers of model \"{}\" are not known", scenario.model.kind),
        "a scenario with a shipped model");
  return plans.front();
}

// Runs the worker; the profile without what only this process knows.
Expected<LayerProfile> measure_layers(const RunPlan& plan, int64_t repetitions) {
  const auto worker = find_worker();
  if (!worker) return worker.errors();
  std::string why;
  const auto file = hand_over(to_text(plan), &why);
  std::optional<std::string> text;
  if (file)
    text = output_of({worker.value(), "--profile", *file, fmt::format("{}", repetitions)},
                     std::chrono::milliseconds(plan.scenario.timeouts.run_ms), &why);
  if (!text) return option_error(fmt::format("the layers could not be measured: worker {}", why));
  if (text->starts_with("error: "))
    return option_error("the layers could not be measured: " +
                        text->substr(7, text->find('\n') - 7));
  return profile_from(*text, "output of lockstep-worker");
}

std::string summary(const LayerProfile& profile, const std::string& path) {
  double forward = 0, backward = 0;
  for (const LayerTime& layer : profile.layers) {
    forward += layer.forward_ms;
    backward += layer.backward_ms;
  }
  const auto layers = static_cast<int64_t>(profile.layers.size());
  return fmt::format("{}: {} {}, forward {:.3f} ms, backward {:.3f} ms with {} {}, median of {}\n",
                     path, grouped(layers), plural(layers, "layer"), forward, backward,
                     grouped(profile.samples), plural(profile.samples, "sample"),
                     grouped(profile.repetitions));
}

}  // namespace

int profile(const ProfileOptions& options) {
  InputErrors errors;
  check_output("--out", options.out, &errors);
  if (!errors.empty()) return bad_input(errors);
  const auto plan = chosen_plan(options.selection);
  if (!plan) return bad_input(plan.errors());
  auto profile = measure_layers(plan.value(), options.repetitions);
  if (!profile) return bad_input(profile.errors());
  profile.value().cpu = this_machine().cpu;
  try {
    write_atomically(options.out, to_text(profile.value()));
  } catch (const std::system_error& error) {
    return bad_input({option_error(fmt::format("--out {}", error.what()))});
  }
  return print_result(summary(profile.value(), options.out), kExitPass);
}

}  // namespace lockstep
