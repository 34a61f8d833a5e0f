#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/weights/checkpoint.h"

namespace lockstep {

// The state at the end of a run that was exported (sim/worker/export.h), named as PyTorch names it:
// "state_dict/fc1.weight" (parameters, then buffers), "optimizer/state/0/exp_avg" (number of the
// parameter), and what of the optimizer's state PyTorch has no such name for below "other_state/".
struct ExportedState {
  std::vector<CheckpointTensor> tensors;
  std::vector<std::shared_ptr<const MappedFile>> files;                // what they point into
  std::vector<std::shared_ptr<const std::vector<std::byte>>> numbers;  // step counters, as float32
};
// Bad input: a folder without a manifest, or files other than it says.
Expected<ExportedState> read_export(const std::string& folder);

}  // namespace lockstep
