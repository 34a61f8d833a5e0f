#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/state_kind.h"

namespace lockstep {

struct Training;

struct StateEntry {
  StateKind kind;
  std::string name;   // of the parameter or buffer; "fc1.weight.momentum_buffer" for state
  int64_t parameter;  // registration index of the parameter, -1 for buffers
  std::string dtype;  // "float32"
  int64_t numel;
  int64_t bytes;
  int64_t offset;  // in the state's bytes; aligned to 64
};

// All tensors of a Training, by which two runs are compared after a step, as one run of bytes.
// Equal for all ranks and the replay golden; for a golden in another dtype only the dtypes, bytes
// and offsets differ. `presence` bytes (one per entry, 0 where a gradient is absent) stand at the
// end of the state's bytes.
struct StateLayout {
  std::vector<StateEntry> entries;
  int64_t presence_offset = 0;
  int64_t bytes = 0;
};

// Of it the parameters alone, in the same bytes.
StateLayout parameters_of(const StateLayout& layout);

// Optimizer state that does not exist before the first step is given the shape of its parameter.
StateLayout state_layout(const Training& training, const std::string& optimizer_kind);

// Copies all tensors (contiguous, sparse ones made dense) to `out`, layout.bytes long. Absent ones
// are zero, with presence 0.
void copy_state(const Training& training, const StateLayout& layout, std::byte* out);

// Copies only the gradients, to the places that they have in a whole state; nothing behind
// gradients_end() is written.
void copy_gradients(const Training& training, const StateLayout& layout, std::byte* out);
int64_t gradients_end(const StateLayout& layout);

// Of the gradients alone, where they lie (sparse ones made dense): equal bits, equal hash. Which
// are absent counts too. Not comparable with hash_entries().
uint64_t hash_gradients(const Training& training);

// XXH3-64 of each entry's bytes and presence, from a state's bytes.
std::vector<uint64_t> hash_entries(const StateLayout& layout, const std::byte* state);

}  // namespace lockstep
