#include "sim/cli/devices.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/narrow.h"
#include "sim/cli/worker_program.h"
#include "sim/judge/words.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kLoadTimeout{120};  // LibTorch's CUDA library is a gigabyte

FoundDevices ask(const std::string& worker) {
  FoundDevices found;
  std::string why;
  const auto text = output_of({worker, "--devices"}, kLoadTimeout, &why);
  auto document = json_or_discarded(text.value_or(""));
  if (!document.is_object() || !document.contains("cuda")) {
    found.problem = "lockstep-worker --devices " + (text ? "printed no JSON object" : why);
    found.no_nccl = found.problem;
    return found;
  }
  const auto& cuda = document["cuda"];
  found.count = cuda.value("count", int64_t{0});
  found.problem = cuda.value("problem", "");
  found.name = cuda.value("name", "");
  found.capability = cuda.value("capability", "");
  found.driver = cuda.value("driver", "");
  found.no_nccl = document.value("no_nccl", "");
  return found;
}

std::optional<InputError> problem_of(const RunPlan& plan, const FoundDevices& found) {
  const Scenario& s = plan.scenario;
  InputError error;
  error.file = printable(plan.file);
  if (found.count == 0) {
    error.pointer = "/device";
    error.message = fmt::format("device cuda: {}", found.problem);
    error.allowed = "\"cpu\", or \"auto\", which is the cpu then (lockstep doctor)";
    return error;
  }
  if (s.communicator.kind != "nccl") return std::nullopt;
  error.pointer = "/communicator/kind";
  if (!found.no_nccl.empty()) {
    error.message = fmt::format("communicator nccl: {}", found.no_nccl);
    error.allowed = "gloo or c10d";
    return error;
  }
  if (s.world_size <= found.count) return std::nullopt;
  error.message = fmt::format("communicator nccl wants a device for each rank: {} ranks, {} {}",
                              s.world_size, found.count, plural(found.count, "device"));
  error.allowed = fmt::format("at most {} {}, or gloo or c10d, where ranks may share a device",
                              found.count, plural(found.count, "rank"));
  return error;
}

// `device` for "auto", with everything that the selection has said of the plan.
std::optional<RunPlan> planned_on(const std::string& device, const RunPlan& plan) {
  Scenario scenario = plan.scenario;
  scenario.device = device;
  auto planned = make_plan(scenario);
  if (!planned) return std::nullopt;
  planned.value().set = plan.set;
  planned.value().file = plan.file;
  return std::move(planned.value());
}

// Each reason once for all plans of an invocation.
void say(const std::string& why, bool quiet) {
  static std::set<std::string> said;
  if (!quiet && said.insert(why).second)
    print_error(fmt::format("device auto: the cpu, since {}\n", printable(why)));
}

void choose(const std::string& worker, bool quiet, RunPlan* plan) {
  const FoundDevices& found = found_devices(worker);
  auto on_gpu = found.count > 0 ? planned_on("cuda", *plan) : std::nullopt;
  if (on_gpu) {
    *plan = std::move(*on_gpu);
    return;
  }
  *plan = planned_on("cpu", *plan).value();
  say(found.count > 0 ? fmt::format("{} cannot run on a GPU", plan->scenario.name) : found.problem,
      quiet);
}

// Moves what this machine cannot run out of the file's plans; the first reason.
std::optional<InputError> leave_out(const std::string& worker, bool quiet, SelectedFile* file) {
  std::optional<InputError> first;
  std::vector<RunPlan> left;
  for (RunPlan& plan : file->plans) {
    const auto error = settle_device(worker, quiet, &plan);
    if (!error) {
      left.push_back(std::move(plan));
      continue;
    }
    file->left_out.push_back({plan.scenario.name, plan.file, label_of(plan.set), error->message});
    if (!first) first = error;
  }
  file->plans = std::move(left);
  return first;
}

// Even where all else is quiet: nobody is to take the verdict for one about them.
void say_left_out(const std::vector<SelectedFile>& files) {
  std::map<std::string, int64_t> runs;  // by reason
  for (const SelectedFile& file : files)
    for (const NotRun& run : file.left_out) ++runs[run.why];
  for (const auto& [why, count] : runs)
    print_error(
        fmt::format("left out: {} {}: {}\n", grouped(count), plural(count, "run"), printable(why)));
}

}  // namespace

const FoundDevices& found_devices(const std::string& worker) {
  static const FoundDevices found = ask(worker);
  return found;
}

std::optional<InputError> settle_device(const std::string& worker, bool quiet, RunPlan* plan) {
  if (plan->scenario.device == "auto") choose(worker, quiet, plan);
  if (plan->scenario.device != "cuda") return std::nullopt;
  return problem_of(*plan, found_devices(worker));
}

InputErrors settle_devices(const std::string& worker, bool quiet,
                           std::vector<SelectedFile>* files) {
  InputErrors all, demanded;
  for (SelectedFile& file : *files) {
    const auto error = leave_out(worker, quiet, &file);
    if (!error) continue;
    all.push_back(*error);
    if (!file.in_folder) demanded.push_back(*error);
  }
  if (count_runs(*files) == 0) return all;
  if (demanded.empty() && !all.empty()) say_left_out(*files);
  return demanded;
}

}  // namespace lockstep
