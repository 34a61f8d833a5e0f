#pragma once

#include <string>
#include <vector>

#include "sim/weights/checkpoint.h"

namespace lockstep {

// data.pkl of a torch.save file, protocol 2: nested dictionaries by the paths of names, in the
// order of `tensors`; tensor i has storage "i". Throws std::runtime_error for a dtype that
// PyTorch 1.13 has no storage for.
std::string pickled(const std::vector<CheckpointTensor>& tensors);

}  // namespace lockstep
