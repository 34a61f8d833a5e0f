#include "sim/worker/main/tasks.h"

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "reducer/comm_hook.h"
#include "reducer/registry.h"
#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "scenarios/workloads/registry.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/limits.h"
#include "sim/worker/libraries.h"
#include "sim/worker/process_tasks.h"
#include "sim/worker/profile.h"
#include "sim/worker/thread_host.h"
#ifdef LOCKSTEP_TOOLS
#include "sim/tools/collective/worker/collective.h"
#include "sim/tools/explore/worker/explore.h"
#endif

namespace lockstep {
namespace {

RunPlan read_plan(const std::string& path) {
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) throw std::runtime_error(to_text(text.errors().front()));
  return plan_from_json(json_or_discarded(text.value()));
}

}  // namespace

void prepare_forks() { prepare_libtorch_for_forks(); }

int run_task(const WorkerTask& task, Control& control) {
  if (task.role == "thread_host") return run_thread_host(task, control);
  take_room(1);
#ifdef LOCKSTEP_TOOLS
  if (task.role == "collective") return run_collective_process(task, control);
#endif
  const RunPlan plan = read_plan(plan_path(task.run_dir));
  if (task.role == "rank") return run_rank_process(task, plan, control);
  if (task.role == "golden") return run_golden_process(task, plan);
  if (task.role == "rounding") return run_rounding_process(task, plan);
  throw std::runtime_error("no worker task has the role \"" + task.role + "\"");
}

std::string worker_profile(const std::string& plan_file, int64_t repetitions) {
  take_room(1);
  prepare_libtorch(1);
  return to_text(measure_layers(read_plan(plan_file), repetitions));
}

int worker_explore([[maybe_unused]] const std::string& file) {
#ifdef LOCKSTEP_TOOLS
  return run_explore(file);
#else
  throw std::runtime_error("this worker was built without sim/tools");
#endif
}

namespace {

struct RegistryRow {
  const char* part;  // of a scenario
  void (*find)(const std::string& name);
};
constexpr std::array kRegistries = {
    RegistryRow{"model", find_model}, RegistryRow{"data", find_data_set},
    RegistryRow{"reducer", find_reducer}, RegistryRow{"comm_hook", find_comm_hook}};

std::string problem_of(const std::string& part, const std::string& name) {
  for (const RegistryRow& row : kRegistries) {
    if (part != row.part) continue;
    try {
      row.find(name);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  return "nothing is registered as " + part;
}

}  // namespace

std::string worker_unknown_names(const std::vector<std::string>& asked) {
  auto problems = nlohmann::json::array();
  for (size_t i = 0; i + 1 < asked.size(); i += 2)
    problems.push_back(problem_of(asked[i], asked[i + 1]));
  return problems.dump();
}

std::string worker_libraries() { return libraries_json(); }

std::string worker_devices() { return devices_json(); }

}  // namespace lockstep
