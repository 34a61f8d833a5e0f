#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "golden/state.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// Adds up each gradient as this rank's own backward passes made it, before any reduction: tensor
// hooks see it before the reducer does. Costs one addition of the gradients a step. The hooks are
// gone when the object is destroyed; it must not outlive the training.
class LocalGradients {
 public:
  LocalGradients(const Training& training, const StateLayout& layout);
  ~LocalGradients();
  LocalGradients(const LocalGradients&) = delete;
  LocalGradients& operator=(const LocalGradients&) = delete;

  // Forgets what the last step left; call before the first backward of each.
  void clear();
  // The first parameter whose grad() is not what was added up since then; empty: none.
  std::string lost() const;
  // Gradients at the places that they have in a state. A gradient that backward did not make is 0.
  const std::byte* bytes() const { return bytes_.data(); }

 private:
  struct Hook;
  std::vector<std::byte> bytes_;
  std::vector<Hook> hooks_;
};

}  // namespace lockstep
