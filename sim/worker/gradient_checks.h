#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "golden/state.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/tensor_hooks.h"
#include "sim/worker/probe.h"

namespace lockstep {

// The memory that a tensor's elements take: where the first lies, and how far apart its neighbours
// are along each dimension. Views of one storage need not share a byte.
struct MemorySpan {
  std::string name;
  int64_t device = -1;  // equal addresses on two devices are two places
  uint64_t address = 0;
  int64_t element_bytes = 0;
  std::vector<int64_t> sizes, strides;  // strides count elements
};

// Do two elements of the tensor share memory (as those of an expanded one do)?
bool overlaps_itself(const MemorySpan& span);

// Do they share a byte?
bool overlap(const MemorySpan& a, const MemorySpan& b);

// Indices of the first two that do, the lesser first. Tensors without elements take no memory.
std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<MemorySpan>& spans);

// Adds up each gradient as this rank's own backward passes made it, before any reduction: tensor
// hooks see it before the reducer does. Costs one addition of the gradients a step. The hooks are
// gone when the object is destroyed; it must not outlive the training.
class LocalGradients {
 public:
  LocalGradients(const Training& training, const StateLayout& layout);

  // Forgets what the last step left; call before the first backward of each.
  void clear();
  // The first parameter whose grad() is not what was added up since then; empty: none.
  std::string lost() const;
  // Gradients at the places that they have in a state. A gradient that backward did not make is 0.
  const std::byte* bytes() const { return bytes_.data(); }

 private:
  struct Sum {
    NamedTensor parameter;
    at::Tensor sum;
  };
  std::vector<std::byte> bytes_;
  std::vector<Sum> sums_;
  TensorHooks hooks_;
};

// Checks of the gradients that a reducer leaves behind: each one line that names the parameter, or
// empty where all is well. Cheap; no number is read.

// Every trained parameter has a gradient, unless the reducer looks for unused ones or takes the
// graph as static.
std::string absent_gradient(const Scenario& scenario, const Training& training);

// No two parameters or gradients share a byte, and no tensor's elements do: an update of one would
// change the other. Views into one storage that share nothing, as those of a bucket, are right.
// With gradient_as_bucket_view the gradients of a bucket lie in one storage.
std::string wrong_aliasing(const Scenario& scenario, const Training& training,
                           const RecordingProbe& probe);

}  // namespace lockstep
