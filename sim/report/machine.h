#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

// The machine of a result: numbers come with it. Never its name.
struct Machine {
  std::string cpu;        // "AMD EPYC 9V74 80-Core Processor"
  int64_t cores = 0;      // that this process may use
  double load = 0;        // of the last minute, when asked
  int64_t memory_mb = 0;  // 10^6 bytes
  std::string kernel;     // "6.1.0"
  // NCCL_*, GLOO_* and OMP_* variables, as they were set.
  std::map<std::string, std::string> environment;
};
Machine this_machine();

// Libraries that the workers were linked with and what they use of the CPU: the fingerprint.
struct Libraries {
  std::string torch, gloo, blas, torch_cpu_capability, blas_cpu_capability;  // empty: not known
  std::string torch_file = {};                                               // libtorch_cpu.so
  std::string cuda = {};         // device 0, its compute capability, the driver's CUDA
  std::string gloo_linked = {};  // shared, own, or mixed: with the Gloo inside LibTorch
};
// LibTorch's version, with "+gloo" behind it where it has a Gloo inside: what expectations' ranges
// of versions are asked about (scenarios/scenario.h). Empty: not known.
std::string libtorch_of(const Libraries& libraries);
// What workers left in `path` (libraries.json); all empty where there is no such file.
Libraries read_libraries(const std::string& path);
// The same from its JSON text; nothing if it is not such a document.
std::optional<Libraries> libraries_of(const std::string& json_text);

const char* lockstep_version();  // "0.1.0"
const char* lockstep_commit();   // "a1b2c3d", or "unknown"

// A document of --json: which schema, lockstep and commit, before its own members.
nlohmann::ordered_json with_head(nlohmann::ordered_json members);

}  // namespace lockstep
