#include "sim/calibrate/row_middle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "sim/calibrate/alternatives.h"

namespace lockstep {
namespace {

class Middle {
 public:
  Middle(const RowContext& row, const std::vector<RowExplanation>& explanations)
      : row_(row), explanations_(explanations), middle_(row.base) {}

  Guess take() {
    bucket_us_ = middle_of(&RowExplanation::bucket_us);
    middle_.machine.bucket_ns = std::llround(bucket_us_ * 1e3);
    middle_.machine.rank_spread = middle_of(&RowExplanation::spread);
    if (has(Excess::compute))
      fit_compute();
    else
      share_excess();
    return middle_;
  }

 private:
  bool has(Excess excess) const {
    return std::any_of(explanations_.begin(), explanations_.end(), [&](const RowExplanation& one) {
      return one.excess == excess && one.as_said();
    });
  }

  // Of what the explanations have, between the least and the most.
  double middle_of(double RowExplanation::*value) const {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const RowExplanation& one : explanations_) {
      if (!one.as_said()) continue;
      least = std::min(least, one.*value);
      most = std::max(most, one.*value);
    }
    return (least + most) / 2;
  }

  double fitted_ms() const { return row_.fitted.ms; }

  void fit_compute() {
    if (!row_.base.machine.says_sync)
      middle_.machine.sync_ns = std::llround(row_.most_beside_ms() / 2 * 1e6);
    middle_.compute *= solved({Excess::compute, bucket_us_}, 1e-6, 1e6, fitted_ms()).value_or(1);
  }

  void share_excess() {
    MachineModel& machine = middle_.machine;
    machine.rank_spread = std::min(machine.rank_spread, spread_that_fits());
    if (!share_contention()) share_links();
    const double parameter_us =
        solved({Excess::reducer, bucket_us_}, 0, kMostOneRankUs, fitted_ms()).value_or(0);
    if (row_.fitted.ranks == 1) {
      machine.parameter_ns += std::llround(parameter_us * 1e3);
      return;
    }
    machine.parameter_ns += std::llround(std::min(parameter_us / 2, kMostParameterUs) * 1e3);
    slow_what_is_left();
    machine.sync_ns +=
        std::llround(std::max(0.0, fitted_ms() - row_.fitted_step_ms(middle_)) * 1e6);
  }

  // Half of what would make the row by itself.
  double spread_that_fits() const {
    if (row_.base.machine.says_spread || row_.fitted.ranks == 1) return middle_.machine.rank_spread;
    const auto most = value_giving(fitted_ms(), 0, kMostRankSpread, [&](double spread) {
      Guess tried = middle_;
      tried.machine.rank_spread = spread;
      return row_.fitted_step_ms(tried);
    });
    return most.value_or(0) / 2;
  }

  // Collectives that are long enough for it make half of the excess. Links so slow that they just
  // exceed the backward which hides them would be a coincidence.
  bool share_contention() {
    if (row_.fitted.ranks == 1 || row_.base.machine.overlap_slowdown > 0) return false;
    const double half_ms = (row_.fitted_step_ms(middle_) + fitted_ms()) / 2;
    const auto half = solved({Excess::contention, bucket_us_}, 0, kMostContention, half_ms);
    middle_.machine.overlap_slowdown = half.value_or(0);
    return half.has_value();
  }

  // Half of what links explain, and half of that of links between hosts that the row does not go
  // over: software may be slow on both, or a wire on one.
  void share_links() {
    if (!has(Excess::link)) return;
    const auto slower = solved({Excess::link, bucket_us_}, 1, kMostSlower, fitted_ms());
    const double half = std::sqrt(slower.value_or(1));
    slow_links(half, row_.goes_across(), &middle_.machine);
    if (!row_.goes_across()) slow_link(std::sqrt(half), &middle_.machine.cost.across);
  }

  // What every step takes beside is a small part of it, or rather links are slow.
  void slow_what_is_left() {
    if (!row_.has_links()) return;
    const double without_ms = fitted_ms() - row_.most_beside_ms();
    const auto slower = solved({Excess::link, bucket_us_}, 1, kMostSlower, without_ms);
    if (slower) slow_links(*slower, row_.goes_across(), &middle_.machine);
  }

  std::optional<double> solved(RowExplanation explanation, double least, double most,
                               double ms) const {
    explanation.spread = middle_.machine.rank_spread;
    explanation.across = row_.goes_across();
    return value_giving(ms, least, most, [&](double value) {
      Guess tried = middle_;
      explanation.value = value;
      apply(explanation, &tried);
      return row_.fitted_step_ms(tried);
    });
  }

  const RowContext& row_;
  const std::vector<RowExplanation>& explanations_;
  Guess middle_;
  double bucket_us_ = 0;
};

}  // namespace

Guess middle_of(const RowContext& row, const std::vector<RowExplanation>& explanations) {
  return Middle(row, explanations).take();
}

}  // namespace lockstep
