#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/weights/dtype.h"
#include "sim/weights/mapped_file.h"

namespace lockstep {

// A tensor as it lies in a file. Element [i, j, ...] is at `first` + i * strides[0] + ... elements;
// the reader has seen to it that every one of them is within the file.
struct CheckpointTensor {
  std::string name;  // path through nested dictionaries: "optimizer/state/0/exp_avg"
  Dtype dtype = Dtype::float32;
  std::vector<int64_t> shape;        // empty: a scalar, or a plain number
  std::vector<int64_t> strides;      // in elements, as long as shape
  const std::byte* first = nullptr;  // into the file; null in a comparison's result
  int64_t numel() const;
  bool contiguous() const;
};

// A value that only code could make, or whose numbers lockstep cannot read: it is left out.
struct SkippedValue {
  std::string name;  // as of tensors; of a dictionary's key that is one, what it stands in
  std::string type;  // "argparse.Namespace"
  bool holds_tensors = false;  // or may hold some
  int64_t byte = 0;            // of data.pkl, where the type is named; 0: not known
};

// Tensors, and plain numbers and truth values (as int64, float64 or bool without axes), in the
// order in which they stand in the file. Texts, None and what has no numbers is left out.
struct Checkpoint {
  std::string path;
  std::string format;  // safetensors | torch
  std::vector<CheckpointTensor> tensors;
  std::vector<SkippedValue> skipped;

  std::shared_ptr<const MappedFile> file;                // what `first` points into
  std::shared_ptr<const std::vector<std::byte>> values;  // ... for plain numbers
};

// Reads names and places; tensors stay in the mapped file. Which format it is, its first bytes say.
// Bad input, with the place in the file: anything damaged, ambiguous (two values of one name,
// tensors that overlap in a safetensors file), in torch.save's format before PyTorch 1.6,
// compressed, in need of code to be understood as a whole, or so large in its names or shared
// storages that reading it would take memory or time out of proportion to its size.
Expected<Checkpoint> read_weights_file(const std::string& path);

// Of those names that begin with `key` and a slash what follows, or everything for an empty key.
// Bad input where nothing does, which says what dictionaries there are, and where a value of these
// was skipped that holds tensors: they cannot be left out in silence.
Expected<Checkpoint> below_key(Checkpoint checkpoint, const std::string& key);

}  // namespace lockstep
