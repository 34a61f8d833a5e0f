#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "golden/own_weights.h"
#include "golden/replay.h"
#include "golden/sample_cache.h"
#include "golden/statistics.h"

namespace lockstep {
namespace {

// docs/numerics.md, "Communication bound"; Higham, Accuracy and Stability of Numerical
// Algorithms, 3.1: however W numbers are added, each passes through W - 1 additions at most, and a
// division by W, or a multiplication by the rounded 1 / W, adds two roundings where W is no power
// of two.
double gamma(int64_t world_size) {
  const double u = std::numeric_limits<float>::epsilon() / 2;
  const bool exact = std::has_single_bit(static_cast<uint64_t>(world_size));
  const double k = static_cast<double>(world_size - 1 + (exact ? 0 : 2));
  return k * u / (1 - k * u);
}

// Each rank's part of the mean, and of the mean of absolute values.
struct Means {
  at::Tensor of_values, of_sizes;
};

// Parameters' gradients are compared; what is left out no rank has a gradient of.
class CommunicationLane : public StatisticLane {
 public:
  CommunicationLane(const Scenario& given, const ReplayRule& rule)
      : scenario_(fresh(given)),
        own_(given),
        replay_(rule, scenario_, own_.setup.training),
        samples_(scenario_, own_.setup.data) {}

  StatisticStep judge(int64_t step, const std::byte* before, const std::byte* after) override {
    own_.set(before);
    std::vector<Means> means(own_.setup.training.parameters.size());
    replay_.average(step, samples_.shards(step), [&](int64_t) { add(&means); });
    StatisticStep result;
    for (size_t e = 0; e < own_.layout.entries.size(); ++e) {
      const StateEntry& entry = own_.layout.entries[e];
      if (entry.kind != StateKind::gradient) continue;
      const Means& mean = means[static_cast<size_t>(entry.parameter)];
      if (!mean.of_values.defined()) continue;
      const at::Tensor average = own_.values_in(entry, after);
      const double r = ratio(average, mean);
      if (result.entry < 0) {
        flip_highest_mantissa_bit_of_largest(average);
        result.control_r = ratio(average, mean);
      }
      if (result.entry < 0 || !(r <= result.r)) {
        result.r = r;
        result.entry = static_cast<int64_t>(e);
      }
    }
    result.control_r = std::max(result.control_r, result.r);
    return result;
  }

 private:
  // Gradients of a step before are no part of this one's.
  static Scenario fresh(Scenario scenario) {
    scenario.zero_grad = "none";
    return scenario;
  }

  // Of the rank whose gradients the parameters hold now.
  void add(std::vector<Means>* means) const {
    const auto ranks = static_cast<double>(scenario_.world_size);
    for (size_t i = 0; i < means->size(); ++i) {
      const at::Tensor& gradient = own_.setup.training.parameters[i].tensor.grad();
      if (!gradient.defined()) continue;
      const at::Tensor part = whole(gradient.detach()).to(at::kDouble) / ranks;
      Means& mean = (*means)[i];
      mean.of_values = mean.of_values.defined() ? mean.of_values + part : part;
      mean.of_sizes = mean.of_sizes.defined() ? mean.of_sizes + part.abs() : part.abs();
    }
  }

  // Where all ranks have 0, the average must be 0. NaN and infinity are beyond every bound.
  double ratio(const at::Tensor& average, const Means& mean) const {
    if (average.numel() == 0) return 0;
    const at::Tensor error = (average.to(at::kDouble) - mean.of_values).abs();
    const at::Tensor allowed = mean.of_sizes * gamma(scenario_.world_size) + kSmallest;
    const double worst = (error / allowed).max().item<double>();
    return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
  }

  // Below it float32 has no relative precision.
  static constexpr double kSmallest = std::numeric_limits<float>::denorm_min();

  const Scenario scenario_;
  OwnWeights own_;
  Replay replay_;
  SampleCache samples_;
};

}  // namespace

std::unique_ptr<StatisticLane> make_communication_lane(const Scenario& scenario,
                                                       const ReplayRule& rule) {
  return std::make_unique<CommunicationLane>(scenario, rule);
}

}  // namespace lockstep
