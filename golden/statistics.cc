#include "golden/statistics.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "golden/replay.h"
#include "golden/state.h"
#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"
#include "scenarios/split.h"
#include "scenarios/workloads/data.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// A training on the golden device that takes its weights from a run's states, step by step.
class OwnWeights {
 public:
  explicit OwnWeights(const Scenario& scenario);

  void set(const std::byte* state);
  // Of a parameter or its gradient, on the host.
  at::Tensor values_in(const StateEntry& entry, const std::byte* state) const;

  Setup setup;
  StateLayout layout;
};

// Dense and on the host.
at::Tensor whole(const at::Tensor& gradient);
// What a must-fail control does to a gradient, in place.
void flip_highest_mantissa_bit_of_largest(at::Tensor gradient);

OwnWeights::OwnWeights(const Scenario& scenario)
    : setup(set_up(scenario, scenario.dtype, 0, golden_devices(scenario))),
      layout(state_layout(setup.training, scenario.optimizer.kind)) {}

void OwnWeights::set(const std::byte* state) {
  const c10::NoGradGuard no_grad;
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != StateKind::parameter) continue;
    const auto i = static_cast<size_t>(entry.parameter);
    at::Tensor(setup.training.parameters[i].tensor).copy_(values_in(entry, state));
  }
}

at::Tensor OwnWeights::values_in(const StateEntry& entry, const std::byte* state) const {
  const at::Tensor& like = setup.training.parameters[static_cast<size_t>(entry.parameter)].tensor;
  at::Tensor values = at::empty(like.sizes(), at::dtype(like.scalar_type()));
  std::memcpy(values.data_ptr(), state + entry.offset, static_cast<size_t>(entry.bytes));
  return values;
}

at::Tensor whole(const at::Tensor& gradient) {
  return on_host(gradient.is_sparse() ? gradient.to_dense() : gradient).contiguous();
}

void flip_highest_mantissa_bit_of_largest(at::Tensor gradient) {
  const int64_t at = gradient.abs().argmax().item<int64_t>();
  if (gradient.scalar_type() == at::kDouble)
    *reinterpret_cast<uint64_t*>(gradient.data_ptr<double>() + at) ^= uint64_t{1} << 51;
  else
    *reinterpret_cast<uint32_t*>(gradient.data_ptr<float>() + at) ^= uint32_t{1} << 22;
}

double threshold_of(Statistic statistic) {
  return statistic == Statistic::rounding ? kRoundingThreshold : kCommunicationThreshold;
}

GoldenItem statistic_item(const Scenario& scenario) {
  GoldenItem item = golden_item(scenario, GoldenKind::replay, false);
  item.bytes = 2 * item.layout.bytes;
  return item;
}

std::unique_ptr<StatisticLane> make_statistic_lane(Statistic statistic, const Scenario& scenario,
                                                   const ReplayRule& rule) {
  if (statistic == Statistic::rounding) return make_rounding_lane(scenario, rule);
  return make_communication_lane(scenario, rule);
}

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

// No draw can be promised to lie nearer to its oracle than half of the last place of the result. Of
// a gradient of few elements all of them may have been as lucky: that is no measure of others'
// errors.
Error at_least_half_a_place(const Error& null, const at::Tensor& gradient,
                            const at::Tensor& oracle) {
  if (oracle.numel() == 0) return null;
  const bool is_double = gradient.scalar_type() == at::kDouble;
  const double u = is_double ? 0x1p-53 : 0x1p-24;
  return {std::max(null.l2, u * oracle.norm().item<double>()),
          std::max(null.max, u * oracle.abs().max().item<double>())};
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
      const Error usual = at_least_half_a_place(null[i], gradient, exact);
      const double r = worst_ratio(error_of(gradient, exact), usual);
      if (result.entry < 0) {
        flip_highest_mantissa_bit_of_largest(gradient);
        result.control_r = worst_ratio(error_of(gradient, exact), usual);
      }
      result.control_r = std::max(result.control_r, result.entry < 0 ? 0 : r);
      if (result.entry < 0 || r > result.r) {
        result.r = r;
        result.entry = static_cast<int64_t>(e);
      }
    }
    result.has_control = step == 1;
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

// Each rank's part of the mean, and of the mean of absolute values; the last rank's alone.
struct Means {
  at::Tensor of_values, of_sizes, of_last_rank;
};

// The ranks' gradients once more, from the run's own weights.
class RankMeans {
 public:
  RankMeans(const Scenario& given, const ReplayRule& rule)
      : scenario_(fresh(given)),
        own_(given),
        replay_(rule, scenario_, own_.setup.training),
        samples_(scenario_, own_.setup.data) {}

  // Of each parameter; undefined where no rank has a gradient. before: the run's state.
  std::vector<Means> of_step(int64_t step, const std::byte* before) {
    own_.set(before);
    std::vector<Means> means(own_.setup.training.parameters.size());
    replay_.average(step, samples_.shards(step), [&](int64_t rank) { add(rank, &means); });
    return means;
  }

  const OwnWeights& own() const { return own_; }
  int64_t ranks() const { return scenario_.world_size; }

 private:
  // Gradients of a step before are no part of this one's, and a comm hook is what is judged.
  static Scenario fresh(Scenario scenario) {
    scenario.zero_grad = "none";
    scenario.comm_hook = Part{"none", {}};
    return scenario;
  }

  // Of the rank whose gradients the parameters hold now.
  void add(int64_t rank, std::vector<Means>* means) const {
    for (size_t i = 0; i < means->size(); ++i) {
      const at::Tensor& gradient = own_.setup.training.parameters[i].tensor.grad();
      if (!gradient.defined()) continue;
      const at::Tensor part =
          whole(gradient.detach()).to(at::kDouble) / static_cast<double>(ranks());
      Means& mean = (*means)[i];
      mean.of_values = mean.of_values.defined() ? mean.of_values + part : part;
      mean.of_sizes = mean.of_sizes.defined() ? mean.of_sizes + part.abs() : part.abs();
      if (rank == ranks() - 1) mean.of_last_rank = part;
    }
  }

  const Scenario scenario_;
  OwnWeights own_;
  Replay replay_;
  SampleCache samples_;
};

// Parameters' gradients are compared; what is left out no rank has a gradient of.
class CommunicationLane : public StatisticLane {
 public:
  CommunicationLane(const Scenario& given, const ReplayRule& rule) : means_(given, rule) {}

  StatisticStep judge(int64_t step, const std::byte* before, const std::byte* after) override {
    const std::vector<Means> means = means_.of_step(step, before);
    const StateLayout& layout = means_.own().layout;
    StatisticStep result;
    for (size_t e = 0; e < layout.entries.size(); ++e) {
      const StateEntry& entry = layout.entries[e];
      if (entry.kind != StateKind::gradient) continue;
      const Means& mean = means[static_cast<size_t>(entry.parameter)];
      if (!mean.of_values.defined()) continue;
      const at::Tensor average = means_.own().values_in(entry, after);
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
    result.has_control = step == 1;
    return result;
  }

 private:
  // Where all ranks have 0, the average must be 0. NaN and infinity are beyond every bound.
  double ratio(const at::Tensor& average, const Means& mean) const {
    if (average.numel() == 0) return 0;
    const at::Tensor error = (average.to(at::kDouble) - mean.of_values).abs();
    const at::Tensor allowed = mean.of_sizes * gamma(means_.ranks()) + kSmallest;
    const double worst = (error / allowed).max().item<double>();
    return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
  }

  // Below it float32 has no relative precision.
  static constexpr double kSmallest = std::numeric_limits<float>::denorm_min();

  RankMeans means_;
};

// A comm hook that loses a part of the gradients on purpose, by the bound that the scenario states.
class HookBoundLane : public StatisticLane {
 public:
  HookBoundLane(const Scenario& given, const ReplayRule& rule)
      : steps_(given.steps), means_(given, rule), sums_(means_.own().layout.entries.size()) {
    const Options& stated = given.comm_hook.options;
    if (stated.has("error")) error_bound_ = stated.number("error");
    if (stated.has("owed")) owed_bound_ = stated.number("owed");
  }

  StatisticStep judge(int64_t step, const std::byte* before, const std::byte* after) override {
    const std::vector<Means> means = means_.of_step(step, before);
    const StateLayout& layout = means_.own().layout;
    Measured measured;
    for (size_t e = 0; e < layout.entries.size(); ++e) {
      const StateEntry& entry = layout.entries[e];
      const Means& mean = means[static_cast<size_t>(entry.parameter)];
      if (entry.kind == StateKind::gradient && mean.of_values.defined())
        measure(e, means_.own().values_in(entry, after), mean, &measured);
    }
    const double mean = std::sqrt(measured.mean);
    largest_mean_ = std::max(largest_mean_, mean);
    control_ = std::max(control_, part_of_bound(measured.control, mean));
    const bool has_control =
        !had_control_ && (control_ > kCommunicationThreshold || step == steps_);
    had_control_ = had_control_ || has_control;
    return {part_of_bound(measured.run, mean), control_, measured.worst, has_control};
  }

 private:
  // Over all parameters, of one step's difference and of the sum of all so far.
  struct Squares {
    double error = 0, owed = 0;
  };
  // Of one step; control: without the last rank's gradients.
  struct Measured {
    Squares run, control;
    double mean = 0;      // square
    double largest = -1;  // square of a tensor's difference
    int64_t worst = -1;   // entry of that
  };
  struct Sums {
    at::Tensor run, control;
  };

  static double square(const at::Tensor& values) { return values.square().sum().item<double>(); }

  static void add(const at::Tensor& lost, at::Tensor* so_far, Squares* squares) {
    *so_far = so_far->defined() ? *so_far + lost : lost;
    squares->error += square(lost);
    squares->owed += square(*so_far);
  }

  void measure(size_t e, const at::Tensor& average, const Means& mean, Measured* measured) {
    const at::Tensor lost = average.to(at::kDouble) - mean.of_values;
    const at::Tensor& last = mean.of_last_rank;
    add(lost, &sums_[e].run, &measured->run);
    add(last.defined() ? lost - last : lost, &sums_[e].control, &measured->control);
    measured->mean += square(mean.of_values);
    const double size = square(lost);
    if (size <= measured->largest) return;
    measured->largest = std::isfinite(size) ? size : std::numeric_limits<double>::infinity();
    measured->worst = static_cast<int64_t>(e);
  }

  double part_of_bound(const Squares& squares, double mean) const {
    double worst = 0;
    if (error_bound_) worst = ratio(std::sqrt(squares.error), *error_bound_ * mean);
    if (owed_bound_)
      worst = std::max(worst, ratio(std::sqrt(squares.owed), *owed_bound_ * largest_mean_));
    return worst;
  }

  const int64_t steps_;
  RankMeans means_;
  std::optional<double> error_bound_, owed_bound_;
  std::vector<Sums> sums_;
  double largest_mean_ = 0, control_ = 0;
  bool had_control_ = false;
};

}  // namespace

std::unique_ptr<StatisticLane> make_communication_lane(const Scenario& scenario,
                                                       const ReplayRule& rule) {
  if (states_bound(scenario)) return std::make_unique<HookBoundLane>(scenario, rule);
  return std::make_unique<CommunicationLane>(scenario, rule);
}

}  // namespace lockstep
