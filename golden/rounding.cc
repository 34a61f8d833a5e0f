#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "golden/golden_run.h"
#include "golden/replay.h"
#include "scenarios/base/check.h"
#include "scenarios/base/hash.h"
#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"

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

at::Tensor dense(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.to_dense() : gradient;
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

void flip_highest_mantissa_bit_of_largest(at::Tensor gradient) {
  const int64_t at = gradient.abs().argmax().item<int64_t>();
  if (gradient.scalar_type() == at::kDouble)
    *reinterpret_cast<uint64_t*>(gradient.data_ptr<double>() + at) ^= uint64_t{1} << 51;
  else
    *reinterpret_cast<uint32_t*>(gradient.data_ptr<float>() + at) ^= uint32_t{1} << 22;
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

}  // namespace

struct RoundingLane::Parts {
  Parts(const Scenario& given, const ReplayRule& rule)
      : scenario(given),
        split(scenario),
        setup(set_up(given, given.dtype, 0)),
        wide{in_double(setup.data.input), in_double(setup.data.target)},
        layout(state_layout(setup.training, given.optimizer.kind)),
        null_scenario(null_of(given)),
        replay(null_rule(rule), null_scenario, setup.training) {
    const RandomSection random(given.seed);
    oracle = build_training(given, "float64");
  }

  void set_weights(const std::byte* state) {
    const c10::NoGradGuard no_grad;
    for (const StateEntry& entry : layout.entries) {
      if (entry.kind != StateKind::parameter) continue;
      const auto i = static_cast<size_t>(entry.parameter);
      at::Tensor weights = setup.training.parameters[i].tensor;
      std::memcpy(weights.data_ptr(), state + entry.offset, static_cast<size_t>(entry.bytes));
      at::Tensor(oracle.parameters[i].tensor).copy_(weights);
    }
  }

  void find_oracle(const std::vector<int64_t>& indices) {
    const Batch batch = select(wide, indices);
    clear_gradients(oracle.parameters, "none");
    loss_of(scenario.loss, oracle.model->forward(batch.input), batch.target, 1).backward();
  }

  // Parameters that are frozen or that nobody uses have no gradient.
  bool measurable(size_t parameter) const {
    return oracle.parameters[parameter].tensor.grad().defined() &&
           setup.training.parameters[parameter].tensor.grad().defined();
  }

  at::Tensor gradient_in(const StateEntry& entry, const std::byte* state) const {
    at::Tensor gradient = at::empty_like(
        setup.training.parameters[static_cast<size_t>(entry.parameter)].tensor.detach());
    std::memcpy(gradient.data_ptr(), state + entry.offset, static_cast<size_t>(entry.bytes));
    return gradient;
  }

  // The largest error of each parameter's gradient over all null draws.
  std::vector<Error> null_errors(int64_t step) {
    std::vector<int64_t> indices = split.batch(step);
    std::mt19937_64 random(substream_seed(scenario.seed, "rounding", static_cast<uint64_t>(step)));
    std::vector<Error> worst(oracle.parameters.size());
    for (int64_t draw = 0; draw < kRoundingNullDraws; ++draw) {
      shuffle(&indices, random);
      replay.average(step, shards_of(step, indices));
      for (size_t i = 0; i < worst.size(); ++i) {
        if (!measurable(i)) continue;
        const Error error = error_of(dense(setup.training.parameters[i].tensor.grad()),
                                     dense(oracle.parameters[i].tensor.grad()));
        worst[i] = {std::max(worst[i].l2, error.l2), std::max(worst[i].max, error.max)};
      }
    }
    return worst;
  }

  // Of the sizes that the ranks' own shards have.
  std::vector<Batch> shards_of(int64_t step, const std::vector<int64_t>& indices) {
    std::vector<Batch> shards;
    auto begin = indices.begin();
    for (int64_t rank = 0; rank < scenario.world_size; ++rank) {
      const auto end = begin + static_cast<int64_t>(split.shard(step, rank).size());
      shards.push_back(select(setup.data, {begin, end}));
      begin = end;
    }
    return shards;
  }

  const Scenario scenario;
  Split split;
  Setup setup;
  Batch wide;
  StateLayout layout;
  const Scenario null_scenario;
  Replay replay;
  Training oracle;
};

RoundingLane::RoundingLane(const Scenario& scenario, const ReplayRule& rule)
    : parts_(std::make_unique<Parts>(scenario, rule)) {}
RoundingLane::~RoundingLane() = default;

RoundingStep RoundingLane::judge(int64_t step, const std::byte* before, const std::byte* after) {
  parts_->set_weights(before);
  parts_->find_oracle(parts_->split.batch(step));
  const std::vector<Error> null = parts_->null_errors(step);
  RoundingStep result;
  for (size_t e = 0; e < parts_->layout.entries.size(); ++e) {
    const StateEntry& entry = parts_->layout.entries[e];
    const auto i = static_cast<size_t>(entry.parameter);
    if (entry.kind != StateKind::gradient || !parts_->measurable(i)) continue;
    const at::Tensor exact = dense(parts_->oracle.parameters[i].tensor.grad());
    const at::Tensor gradient = parts_->gradient_in(entry, after);
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

GoldenItem rounding_item(const Scenario& scenario) {
  GoldenItem item = golden_item(scenario, GoldenKind::replay, false);
  item.bytes = 2 * item.layout.bytes;
  return item;
}

}  // namespace lockstep
