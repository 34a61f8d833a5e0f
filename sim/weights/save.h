#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/weights/tensor.h"

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

// data.pkl of a torch.save file, protocol 2: nested dictionaries by the paths of names, in the
// order of `tensors`; tensor i has storage "i". Throws std::runtime_error for a dtype that
// PyTorch 1.13 has no storage for.
std::string pickled(const std::vector<CheckpointTensor>& tensors);

// Writes tensors (contiguous) to `path`, in one step: a temporary file beside it, then rename.
// Paths of names become nested dictionaries, digits keys that are integers.
//   .safetensors: those below "state_dict/", without that, so that load_file() gives a state_dict.
//   .pt, .pth: all, as torch.load reads it, weights_only=True too; up to 4 GiB.
// Blocks on the disk. Throws std::runtime_error with the path.
void save_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors);

// Nothing, or why no checkpoint can have that name.
std::string why_no_checkpoint_name(const std::string& path);

// The same bytes, for the tests. Throws std::runtime_error.
std::string safetensors_bytes(const std::vector<CheckpointTensor>& tensors);
std::string torch_bytes(const std::vector<CheckpointTensor>& tensors);

}  // namespace lockstep
