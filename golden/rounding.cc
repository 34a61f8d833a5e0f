#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "golden/own_weights.h"
#include "golden/replay.h"
#include "golden/statistics.h"
#include "scenarios/base/hash.h"
#include "scenarios/split.h"
#include "scenarios/workloads/forward.h"

namespace lockstep {
namespace {

// Distance of one tensor to its oracle.
struct Error {
  double l2 = 0;
  double max = 0;
};

template <class T>
Error error_of(const T* values, const double* oracle, int64_t count) {
  Error error;
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(values[i]) - oracle[i];
    error.l2 += difference * difference;
    // A NaN must not get lost in the maximum.
    if (!(std::abs(difference) <= error.max)) error.max = std::abs(difference);
  }
  error.l2 = std::sqrt(error.l2);
  return error;
}

Error error_of(const at::Tensor& gradient, const at::Tensor& oracle) {
  const double* exact = oracle.data_ptr<double>();
  if (gradient.scalar_type() == at::kDouble)
    return error_of(gradient.data_ptr<double>(), exact, gradient.numel());
  return error_of(gradient.data_ptr<float>(), exact, gradient.numel());
}

double ratio(double run, double null) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (!std::isfinite(run)) return kInfinite;
  if (null == 0) return run == 0 ? 0 : kInfinite;
  return run / null;
}

double worst_ratio(const Error& run, const Error& null) {
  return std::max(ratio(run.l2, null.l2), ratio(run.max, null.max));
}

// Null draws are correct by construction: whatever a scenario does to its loss, the average of the
// shards' losses is that of the whole batch.
Scenario null_of(Scenario scenario) {
  scenario.averaging = "sample_weighted";
  Options& loss = scenario.loss.options;
  loss.set("times_world_size", loss.text("reduction") == "sum");
  scenario.zero_grad = "none";
  return scenario;
}

// Sums in the gradients' own dtype: what a half-precision hook loses is no float32 rounding.
ReplayRule null_rule(ReplayRule rule) {
  rule.added_as.clear();
  return rule;
}

// Tokens and classes stay what they are.
at::Tensor in_double(const at::Tensor& values) {
  return values.is_floating_point() ? values.to(at::kDouble) : values;
}

// Shuffles in place, by a generator that is the same on every machine.
void shuffle(std::vector<int64_t>* indices, std::mt19937_64& random) {
  for (size_t i = indices->size(); i > 1; --i)
    std::swap((*indices)[i - 1], (*indices)[random() % i]);
}

class RoundingLane : public StatisticLane {
 public:
  RoundingLane(const Scenario& given, const ReplayRule& rule)
      : scenario_(given),
        split_(scenario_),
        own_(given),
        wide_{in_double(own_.setup.data.input), in_double(own_.setup.data.target)},
        null_scenario_(null_of(given)),
        replay_(null_rule(rule), null_scenario_, own_.setup.training) {
    const RandomSection random(given.seed);
    oracle_ = build_training(given, "float64");
  }

  StatisticStep judge(int64_t step, const std::byte* before, const std::byte* after) override {
    own_.set(before);
    find_oracle(step, split_.batch(step));
    const std::vector<Error> null = null_errors(step);
    StatisticStep result;
    for (size_t e = 0; e < own_.layout.entries.size(); ++e) {
      const StateEntry& entry = own_.layout.entries[e];
      const auto i = static_cast<size_t>(entry.parameter);
      if (entry.kind != StateKind::gradient || !measurable(i)) continue;
      const at::Tensor exact = whole(oracle_.parameters[i].tensor.grad());
      const at::Tensor gradient = own_.values_in(entry, after);
      const double r = worst_ratio(error_of(gradient, exact), null[i]);
      if (result.entry < 0) {
        flip_highest_mantissa_bit_of_largest(gradient);
        result.control_r = worst_ratio(error_of(gradient, exact), null[i]);
      }
      result.control_r = std::max(result.control_r, result.entry < 0 ? 0 : r);
      if (result.entry < 0 || r > result.r) {
        result.r = r;
        result.entry = static_cast<int64_t>(e);
      }
    }
    return result;
  }

 private:
  void find_oracle(int64_t step, const std::vector<int64_t>& indices) {
    {
      const c10::NoGradGuard no_grad;
      for (size_t i = 0; i < oracle_.parameters.size(); ++i)
        at::Tensor(oracle_.parameters[i].tensor)
            .copy_(own_.setup.training.parameters[i].tensor.detach());
    }
    const Batch batch = select(wide_, indices);
    clear_gradients(oracle_.parameters, "none");
    loss_of(scenario_.loss, forward_of(oracle_, step, batch), batch.target, 1).backward();
  }

  // Parameters that are frozen or that nobody uses have no gradient.
  bool measurable(size_t parameter) const {
    return oracle_.parameters[parameter].tensor.grad().defined() &&
           own_.setup.training.parameters[parameter].tensor.grad().defined();
  }

  // The largest error of each parameter's gradient over all null draws.
  std::vector<Error> null_errors(int64_t step) {
    std::vector<int64_t> indices = split_.batch(step);
    std::mt19937_64 random(substream_seed(scenario_.seed, "rounding", static_cast<uint64_t>(step)));
    std::vector<Error> worst(oracle_.parameters.size());
    for (int64_t draw = 0; draw < kRoundingNullDraws; ++draw) {
      shuffle(&indices, random);
      replay_.average(step, shards_of(step, indices));
      for (size_t i = 0; i < worst.size(); ++i) {
        if (!measurable(i)) continue;
        const Error error = error_of(whole(own_.setup.training.parameters[i].tensor.grad()),
                                     whole(oracle_.parameters[i].tensor.grad()));
        worst[i] = {std::max(worst[i].l2, error.l2), std::max(worst[i].max, error.max)};
      }
    }
    return worst;
  }

  // Of the sizes that the ranks' own shards have.
  std::vector<Batch> shards_of(int64_t step, const std::vector<int64_t>& indices) {
    std::vector<Batch> shards;
    auto begin = indices.begin();
    for (int64_t rank = 0; rank < scenario_.world_size; ++rank) {
      const auto end = begin + static_cast<int64_t>(split_.shard(step, rank).size());
      shards.push_back(select(own_.setup.data, {begin, end}));
      begin = end;
    }
    return shards;
  }

  const Scenario scenario_;
  Split split_;
  OwnWeights own_;
  Batch wide_;
  const Scenario null_scenario_;
  Replay replay_;
  Training oracle_;
};

}  // namespace

std::unique_ptr<StatisticLane> make_rounding_lane(const Scenario& scenario,
                                                  const ReplayRule& rule) {
  return std::make_unique<RoundingLane>(scenario, rule);
}

}  // namespace lockstep
