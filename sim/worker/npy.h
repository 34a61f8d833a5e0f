#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep {

// Writes `tensor` (on the CPU, defined) to `path` in NumPy's .npy format, version 1.0, in C order.
// bfloat16, which NumPy lacks, becomes its bits as uint16. Blocks; throws std::runtime_error with
// the path where the file cannot be written.
void write_npy(const std::string& path, const at::Tensor& tensor);

// What comes before the numbers: magic, version, and the description padded to a multiple of 64
// bytes. `shape` is empty for a scalar.
std::string npy_header(const std::string& descr, at::IntArrayRef shape);

}  // namespace lockstep
