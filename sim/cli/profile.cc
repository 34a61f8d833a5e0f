#include <fmt/format.h>
#include <system_error>

#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "sim/cli/output_files.h"
#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/report/document.h"
#include "sim/report/style.h"

namespace lockstep {
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
