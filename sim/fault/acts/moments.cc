#include "sim/fault/acts/moments.h"

#include <cmath>
#include <numbers>
#include <string_view>

#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

uint64_t named(uint64_t seed, std::string_view name) {
  return hash64(name.data(), name.size(), seed);
}

// In (0, 1), the same on every machine: of substream_seed(seed, name, index), with the name in
// already.
double uniform(uint64_t named_seed, int64_t index) {
  const auto at = static_cast<uint64_t>(index);
  return (static_cast<double>(hash64(&at, sizeof at, named_seed) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

FaultMoments::FaultMoments(const Scenario& scenario, size_t index)
    : fault_(scenario.faults[index]),
      phase_(phase_of(fault_)),
      bucket_(bucket_of(fault_)),
      steps_(steps_of(fault_, scenario.steps)),
      ranks_(ranks_of(scenario)),
      seed_(substream_seed(scenario.seed, "faults", index)) {
  const Options& options = fault_.options;
  if (options.has("layer")) layer_ = options.text("layer");
  if (options.has("factor")) factor_ = options.number("factor");
  if (options.has("every_steps")) every_ = options.integer("every_steps");
  if (options.has("probability")) probability_ = options.number("probability");
  if (options.has("duration_ms")) duration_ms_ = options.number("duration_ms");
  if (!options.has("distribution")) return;
  // As fault_duration_ms of the schema says: mean, median or least value.
  const std::string& word = options.text("distribution");
  spread_ = options.number("spread");
  if (word == "uniform") distribution_ = Distribution::uniform;
  if (word == "pareto") distribution_ = Distribution::pareto;
  if (word == "lognormal") distribution_ = Distribution::lognormal;
}

FaultMoments::OfRank FaultMoments::of_rank(int64_t rank) const {
  OfRank of;
  of.any = acts_on_rank(fault_, rank);
  const auto index = static_cast<uint64_t>(rank);
  if (probability_ < 1) of.acts = named(substream_seed(seed_, "acts", index), "step");
  if (distribution_ == Distribution::constant) return of;
  const uint64_t seed = substream_seed(seed_, "of rank", index);
  of.duration = named(seed, "duration");
  of.second = named(seed, "duration, second");
  return of;
}

bool FaultMoments::acts(const OfRank& of, int64_t rank, int64_t step) const {
  if (!of.any || step < steps_.first || step > steps_.last) return false;
  if (every_ > 0) {
    const int64_t since = step - steps_.first;
    if (fault_.kind == FaultKind::wandering) return since / every_ % ranks_ == rank;
    if (since % every_ != every_ - 1) return false;
  }
  return probability_ >= 1 || uniform(of.acts, step) < probability_;
}

double FaultMoments::duration_ms(const OfRank& of, int64_t step) const {
  if (distribution_ == Distribution::constant) return duration_ms_;
  const double u = uniform(of.duration, step);
  if (distribution_ == Distribution::uniform) return duration_ms_ * (1 + spread_ * (2 * u - 1));
  if (distribution_ == Distribution::pareto) return duration_ms_ * std::pow(u, -1 / spread_);
  const double v = uniform(of.second, step);
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  return duration_ms_ * std::exp(spread_ * normal);
}

std::vector<FaultMoments> moments_of(const Scenario& scenario) {
  std::vector<FaultMoments> moments;
  moments.reserve(scenario.faults.size());
  for (size_t i = 0; i < scenario.faults.size(); ++i) moments.emplace_back(scenario, i);
  return moments;
}

}  // namespace lockstep
