#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>

#include "scenarios/workloads/workload.h"
#include "sim/plan/plan.h"

namespace lockstep {

// Writes `tensor` (on the CPU, defined) to `path` in NumPy's .npy format, version 1.0, in C order.
// bfloat16, which NumPy lacks, becomes its bits as uint16. Blocks; throws std::runtime_error with
// the path where the file cannot be written.
void write_npy(const std::string& path, const at::Tensor& tensor);

// What comes before the numbers: magic, version, and the description padded to a multiple of 64
// bytes. `shape` is empty for a scalar.
std::string npy_header(const std::string& descr, at::IntArrayRef shape);

// Leaves in plan.export_dir what another program needs to train the same run and to compare:
//   manifest.json  written last, so a folder without one is not complete:
//     format "lockstep_export", version 1; file, set, libraries; scenario (resolved, no default
//     left out); data {input, target}; initial and final {parameters, buffers, gradients,
//     optimizer_state}, each a list of {name, dtype, shape, file} in registration order (`file` is
//     null for a tensor that does not exist, such as the gradient of an unused parameter);
//     final.reducer_data: as in a result, or null.
//   order.json     [step][rank] -> indices into the data set, in the order in which they are used;
//                  of reducer invariant [step][virtual shard].
//   *.npy          the numbers, in the folder.
// Rank 0 of the primary run calls it; `initial` holds what the broadcast at construction left,
// `final` what the last step left. Blocks on the disk; throws std::runtime_error with the path
// that cannot be written. One thread.
class Export {
 public:
  explicit Export(const RunPlan& plan);
  ~Export();

  void data(const Batch& data);
  void initial(const Training& training);
  // And the manifest. reducer_data: JSON text, or empty.
  void final(const Training& training, const std::string& reducer_data);

 private:
  nlohmann::ordered_json save(const std::string& what, const NamedTensors& tensors);
  void save_order() const;

  const RunPlan& plan_;
  std::unique_ptr<nlohmann::ordered_json> manifest_;
};

}  // namespace lockstep
