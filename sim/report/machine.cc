#include "sim/report/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "lockstep_commit.h"
#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/join/environment.h"

namespace lockstep {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_model();
  machine.cores = usable_cores();
  double loads[1] = {0};
  if (getloadavg(loads, 1) == 1) machine.load = loads[0];
  struct sysinfo info {};
  if (sysinfo(&info) == 0)
    machine.memory_mb = static_cast<int64_t>(info.totalram) * info.mem_unit / 1'000'000;
  utsname names{};
  if (uname(&names) == 0) machine.kernel = names.release;
  machine.environment = recorded_variables(this_environment());
  return machine;
}

std::optional<Libraries> libraries_of(const std::string& json_text) {
  const auto document = json_or_discarded(json_text);
  if (!document.is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto found = document.find(key);
    return found != document.end() && found->is_string() ? found->get<std::string>() : "";
  };
  Libraries libraries;
  libraries.torch = text("torch");
  libraries.gloo = text("gloo");
  libraries.blas = text("blas");
  libraries.torch_cpu_capability = text("torch_cpu_capability");
  libraries.blas_cpu_capability = text("blas_cpu_capability");
  libraries.torch_file = text("torch_file");
  libraries.cuda = text("cuda");
  libraries.gloo_linked = text("gloo_linked");
  return libraries;
}

std::string libtorch_of(const Libraries& libraries) {
  const bool inside = !libraries.torch.empty() && libraries.gloo_linked == "own";
  return libraries.torch + (inside ? "+gloo" : "");
}

Libraries read_libraries(const std::string& path) {
  return libraries_of(read_foreign_file(path).value_or("")).value_or(Libraries{});
}

const char* lockstep_version() { return LOCKSTEP_VERSION; }
const char* lockstep_commit() { return LOCKSTEP_COMMIT; }

nlohmann::ordered_json with_head(nlohmann::ordered_json members) {
  nlohmann::ordered_json document = {{"schema_version", 1},
                                     {"lockstep_version", lockstep_version()},
                                     {"commit", lockstep_commit()}};
  for (auto& [key, value] : members.items()) document[key] = std::move(value);
  return document;
}

}  // namespace lockstep
