#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/cli/verbs.h"

namespace lockstep {

// The GPUs of this machine, as the worker finds them.
struct FoundDevices {
  int64_t count = 0;
  std::string problem;                   // why there is none
  std::string name, capability, driver;  // of the first
  std::string no_nccl;                   // why there is no communicator nccl; empty: there is
};
// Asks the worker at the first call, which takes seconds where LibTorch has CUDA.
const FoundDevices& found_devices(const std::string& worker);

// Before anything runs: plans of /device "auto" become those of "cuda", where there is one and the
// scenario can run there, else of "cpu", which standard error is told unless `quiet`. Errors, one a
// file, where device cuda is wanted and there is none, or NCCL has fewer devices than ranks.
InputErrors settle_devices(const std::string& worker, bool quiet, std::vector<SelectedFile>* files);

}  // namespace lockstep
