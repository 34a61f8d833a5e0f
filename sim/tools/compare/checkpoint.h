#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/weights/tensor.h"

namespace lockstep {

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

// The two formats. `bytes`: of the whole file. They throw WrongBytes.

bool is_safetensors(std::span<const std::byte> bytes);
// https://github.com/huggingface/safetensors, "Format".
void read_safetensors(std::span<const std::byte> bytes, Checkpoint* checkpoint);

// What torch.save writes since PyTorch 1.6: a zip archive of data.pkl and data/0, data/1, ...
void read_torch(std::span<const std::byte> bytes, Checkpoint* checkpoint);

}  // namespace lockstep
