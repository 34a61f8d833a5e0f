#pragma once

#include <cstddef>
#include <span>

#include "sim/weights/checkpoint.h"

namespace lockstep {

// The two formats. `bytes`: of the whole file. They throw WrongBytes.

bool is_safetensors(std::span<const std::byte> bytes);
// https://github.com/huggingface/safetensors, "Format".
void read_safetensors(std::span<const std::byte> bytes, Checkpoint* checkpoint);

bool is_zip(std::span<const std::byte> bytes);
// What torch.save writes since PyTorch 1.6: a zip archive of data.pkl and data/0, data/1, ...
void read_torch(std::span<const std::byte> bytes, Checkpoint* checkpoint);

// Gives `tensor` its numbers: elements from `offset` on of a storage, by its strides. Throws if one
// lies outside; `what` names the tensor in the error.
void place(std::span<const std::byte> storage, int64_t offset, const std::string& what,
           CheckpointTensor* tensor);

}  // namespace lockstep
