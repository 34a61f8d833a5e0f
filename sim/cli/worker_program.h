#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/cli/verbs.h"

namespace lockstep {

// For an answer of the worker: LibTorch's CUDA library alone is a gigabyte to load.
inline constexpr std::chrono::seconds kWorkerTimeout{120};

// Standard output of a program that must end within `timeout` with exit code 0; else nothing, and
// why. The program is killed when the time is up.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds timeout, std::string* why);

// Where a child process reads `text`: a file without a name that it inherits. Nothing, and why.
std::optional<std::string> hand_over(const std::string& text, std::string* why);

// From now on find_worker() gives this very program, which is lockstep and its worker in one and
// was called by the word `name`.
void be_own_worker(const std::string& name);
// A command line that begins with "lockstep", as this program is called.
std::string as_called(const std::string& command);

// The GPUs of this machine, as the worker finds them.
struct FoundDevices {
  int64_t count = 0;
  std::string problem;                   // why there is none
  std::string name, capability, driver;  // of the first
  std::string no_nccl;                   // why there is no communicator nccl; empty: there is
};
// Asks the worker at the first call, which takes seconds where LibTorch has CUDA.
const FoundDevices& found_devices(const std::string& worker);

// Before anything runs: a plan of /device "auto" becomes that of "cuda", where there is one and the
// scenario can run there, else of "cpu", which standard error is told unless `quiet`. An error
// where device cuda is wanted and there is none, or NCCL has fewer devices than ranks.
std::optional<InputError> settle_device(const std::string& worker, bool quiet, RunPlan* plan);
// All plans of a selection. What this machine cannot run is left out where a folder held its file,
// and standard error told so; where the file was named, or nothing else is left, it is an error,
// one a file.
InputErrors settle_devices(const std::string& worker, bool quiet, std::vector<SelectedFile>* files);

}  // namespace lockstep
