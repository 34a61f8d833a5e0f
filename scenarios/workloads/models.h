#pragma once

#include <memory>

#include "scenarios/workloads/workload.h"

namespace lockstep {

// One function per model kind: float32 weights from the default generator, then `dtype`.
std::unique_ptr<Model> build_linear(const Options& options, const std::string& dtype);
std::unique_ptr<Model> build_mlp(const Options& options, const std::string& dtype);

}  // namespace lockstep
