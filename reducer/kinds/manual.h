#pragma once

#include "reducer/base/gradient_hooks.h"
#include "reducer/base/reducer_base.h"

namespace lockstep {

// After backward: one all_reduce a parameter, in registration order, then the division.
class ManualReducer : public ReducerBase {
 public:
  ManualReducer(const ReducerOptions& options, const NamedTensors& parameters,
                const NamedTensors& buffers, Communicator& communicator, Probe& probe);

  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override;
  BucketLayout layout() const override { return {}; }

 private:
  GradientHooks hooks_;
};

}  // namespace lockstep
