#pragma once

#include "scenarios/workloads/workload.h"

namespace lockstep {

// The first data.samples of an image set (scenarios/files): inputs float32 [samples, channels,
// height, width], from 0 to 1 and then normalized; targets int64 [samples] or, with target
// "input", the inputs as [samples, pixels]. Draws nothing from LibTorch's generators. Reads files:
// throws std::runtime_error where they have become unreadable since the plan looked at them.
Batch image_data(const Part& part);

}  // namespace lockstep
