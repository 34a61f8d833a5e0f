#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

// A checkpoint that cannot be used, or a file that cannot be written or removed. what() is one line
// with the path, and says what is wrong with it.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A tensor as bytes in row-major order.
struct SavedTensor {
  std::string group;  // parameter | buffer | optimizer_state | generator
  std::string name;   // "fc1.weight.momentum_buffer"
  std::string dtype;  // "float32"
  std::vector<int64_t> shape;
  std::string bytes;
  std::string device = "cpu";  // on which it lay
};

// What a checkpoint file holds: all that a run needs to go on as if it had not been interrupted.
struct CheckpointFile {
  int64_t step = 0;        // steps done
  int64_t epoch = 0;       // of the next step, from 0
  int64_t world_size = 1;  // ranks of the run that wrote it
  int64_t written_by = 0;  // rank
  uint64_t seed = 0;       // of the sampler as well: its order follows from seed and epoch
  // Sampler: samples of a step over all ranks, and steps of the epoch that are done.
  int64_t batch_size = 1, next_batch = 0;
  // The dtype of the run: a double run has a file of its own.
  std::string dtype;
  // Held-out loss: of this state, and the smallest so far with its step.
  std::optional<double> metric, best_metric;
  int64_t best_step = 0;
  std::vector<int64_t> resumed_after;  // steps after which the run had been resumed before
  std::vector<SavedTensor> tensors;
};

// The file: the line "lockstep checkpoint 1", the length of the header in 8 bytes (little endian),
// the header as JSON, the tensors' bytes, and XXH3-128 of all that in 16 bytes.
std::string encode_checkpoint(const CheckpointFile& file);
// `path` is for messages alone. Throws CheckpointError: not a checkpoint, cut short, damaged.
CheckpointFile decode_checkpoint(const std::string& bytes, const std::string& path);

// Writes PATH.new.SUFFIX, syncs it and renames it to `path`, so that readers find the file of
// before or the whole new one; a failure leaves the former as it was. `suffix` must be the writer's
// own ("rank-0"). Makes missing folders; several writers may do so at once. Throws CheckpointError.
void write_checkpoint(const CheckpointFile& file, const std::string& path,
                      const std::string& suffix);
// Throws CheckpointError, also where there is no file.
CheckpointFile read_checkpoint(const std::string& path);

}  // namespace lockstep
