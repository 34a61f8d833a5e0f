#pragma once

#include <memory>
#include <string>

#include "scenarios/workloads/workload.h"

namespace lockstep {

// What torch.jit.save wrote, with the weights that it holds (option file). Loading runs the file's
// code: callers must have been told to trust it. Throws c10::Error for what is no module.
std::unique_ptr<Model> build_torchscript(const Options& options, const std::string& dtype);

}  // namespace lockstep
