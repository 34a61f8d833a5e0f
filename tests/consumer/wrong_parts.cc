// Reducers that are wrong, each in one way: lane float64 alone has to say in which.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reducer/base/reducer_base.h"
#include "reducer/registry.h"

namespace {

// All gradients as one bucket; `defect` says what is wrong from step 2 on: on all ranks, but for
// those of rank 1.
class Wrong : public lockstep::ReducerBase {
 public:
  explicit Wrong(const lockstep::ReducerParts& parts)
      : ReducerBase(parts.options, parts.parameters, parts.buffers, parts.communicator,
                    parts.probe),
        defect_(parts.options.own.text("defect")) {}
  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override {
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> flat;
    for (const at::Tensor& parameter : trained_.tensors)
      flat.push_back(parameter.grad().view({-1}));
    const at::Tensor own = at::cat(flat);
    const bool right =
        ++steps_ == 1 || (defect_.starts_with("rank 1") && communicator_.rank() != 1);
    const at::Tensor average = right ? sum(own) / world_size_ : damaged(own);
    int64_t place = 0;
    for (at::Tensor& gradient : flat) {
      gradient.copy_(average.narrow(0, place, gradient.numel()));
      place += gradient.numel();
    }
    last_ = average;
  }

 private:
  at::Tensor sum(const at::Tensor& own) {
    at::Tensor total = own.clone();
    all_reduce(total)->wait();
    return total;
  }
  at::Tensor clipped(const at::Tensor& values, double norm) {
    return values * std::min(1.0, 0.05 / norm);
  }

  at::Tensor damaged(const at::Tensor& own) {
    const auto ranks = static_cast<double>(world_size_);
    const int64_t half = own.numel() / 2;
    if (defect_ == "rank 1 divides by one more") return sum(own / (ranks + 1) * ranks) / ranks;
    if (defect_ == "clipped before") return sum(clipped(own, own.norm().item<double>())) / ranks;
    if (defect_ == "in float32") return sum(own.to(at::kFloat)).to(own.scalar_type()) / ranks;
    at::Tensor average = sum(own) / ranks;
    if (defect_ == "twice") return average / ranks;
    if (defect_ == "scaled" || defect_ == "rank 1 scales") return average * 0.37;
    if (defect_ == "half unsummed" || defect_ == "rank 1 leaves half unsummed")
      return at::cat({average.narrow(0, 0, half), own.narrow(0, half, own.numel() - half)});
    if (defect_ == "exchanged")
      return at::cat({average.narrow(0, half, own.numel() - half), average.narrow(0, 0, half)});
    if (defect_ == "clipped after") return clipped(average, own.norm().item<double>());
    if (defect_ == "stale") return last_;
    if (defect_ == "infinite") average[half].div_(0);
    return average;
  }

  const std::string defect_;
  int64_t steps_ = 0;
  at::Tensor last_;
};
LOCKSTEP_REGISTER_REDUCER("wrong", Wrong);

}  // namespace
