#pragma once

#include "scenarios/workloads/workload.h"

namespace lockstep {

// All tests of a program share one process, and LibTorch's threads are set once in each.
inline void prepare_once() {
  [[maybe_unused]] static const bool prepared = (prepare_libtorch(1), true);
}

}  // namespace lockstep
