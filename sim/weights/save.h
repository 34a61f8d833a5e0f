#pragma once

#include <string>
#include <vector>

#include "sim/weights/checkpoint.h"

namespace lockstep {

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
