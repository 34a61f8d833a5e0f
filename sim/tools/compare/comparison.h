#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/tools/compare/checkpoint.h"

namespace lockstep {

// Two files that belong together, or one that has no partner (its other path is empty).
struct FilePair {
  std::string name;  // relative to the folders: "step-10/rank-0.pt"
  std::string a, b;  // paths
};

// Is there any .safetensors, .pt or .pth file in the folder or below it?
bool has_checkpoints(const std::string& folder);

// The checkpoints (.safetensors, .pt, .pth) of two folders and of those below them, by relative
// name; names that differ in nothing but the extension belong together too. In the order of their
// names, numbers in them by value: step-2 before step-10. Two files are one pair, whatever their
// names. Bad input: one file and one folder, a path that is not there, folders without checkpoints.
Expected<std::vector<FilePair>> pair_files(const std::string& a, const std::string& b);

// Two checkpoints against each other. b is the reference: relative errors are relative to it.

// Elements agree if their bits do or, where a tolerance is given, if both are NaN or
// |a - b| <= atol + rtol * |b|, as in torch.allclose. Of complex numbers both parts must.
struct Tolerance {
  double rtol = 0, atol = 0;
  bool bitwise() const { return rtol == 0 && atol == 0; }
};

// Between two tensors of one shape and dtype that do not agree; numbers are over all elements whose
// bits differ. Of complex numbers a part counts where one number is named.
struct TensorDifference {
  int64_t element = 0;  // flat index of the first that disagrees
  double a_value = 0, b_value = 0;
  uint64_t a_bits = 0, b_bits = 0;
  uint64_t ulp = 0;         // there; of integers the distance; kNoUlp where not both are finite
  int64_t disagreeing = 0;  // elements beyond the tolerance
  int64_t differing = 0;    // elements with other bits
  uint64_t max_ulp = 0;
  double largest_error = 0;  // largest |a - b|; infinite where only one is finite
  double largest_of_b = 0;   // largest finite |b|
  // largest_error / largest_of_b; infinite where that is zero
  double relative_error() const;
};

// What became of one name.
struct TensorComparison {
  enum class Outcome { equal, close, different, other_shape, other_dtype, only_a, only_b };
  Outcome outcome = Outcome::equal;  // close: within the tolerance, but not of the same bits
  std::string name;                  // as in a, else as in b
  std::optional<CheckpointTensor> a, b;
  std::optional<TensorDifference> difference;  // close, different
  bool agrees() const { return outcome == Outcome::equal || outcome == Outcome::close; }
};

struct CheckpointComparison {
  std::vector<TensorComparison> tensors;  // in the order of a, then what only b has
  // How many names agree only without "module.", with which DDP's wrapper begins each, on one side.
  int64_t module_in_a = 0, module_in_b = 0;
  int64_t elements = 0;  // compared
  std::vector<SkippedValue> skipped_in_a, skipped_in_b;
  bool agrees() const;
};

// Blocks while it reads all tensors from their files.
CheckpointComparison compare_checkpoints(const Checkpoint& a, const Checkpoint& b,
                                         const Tolerance& tolerance);

// Nothing where all bits are equal. Same shape and dtype.
std::optional<TensorDifference> compare_tensors(const CheckpointTensor& a,
                                                const CheckpointTensor& b,
                                                const Tolerance& tolerance);

}  // namespace lockstep
