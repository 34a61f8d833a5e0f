#include "sim/tools/program/drill_given.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "sim/tools/program/drill_fit.h"
#include "sim/tools/program/judge.h"

namespace lockstep {
namespace {

bool fits(const std::optional<DrillFit>& fit) { return fit && fit->distance <= kProgramBound; }

// Nothing where it is more than one number, or zero.
std::optional<double> number_of(const DrillCall& call) {
  if (call.outputs.size() != 1 || !call.outputs[0].shape.empty() || !call.outputs[0].norms)
    return std::nullopt;
  const double value = call.outputs[0].norms->sum;
  return value == 0 ? std::nullopt : std::optional(value);
}

double elements_of(const DrillTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), 1.0,
                         [](double all, int64_t size) { return all * static_cast<double>(size); });
}

// Of all elements of what was made, and nothing else.
std::optional<double> factor_of_mean(const DrillCall& call, const DrillCall& made) {
  const auto mean = number_of(call);
  if (!mean || !call.name.ends_with(".mean") || call.inputs.size() != 1 ||
      made.outputs.size() != 1 || !made.outputs[0].norms)
    return std::nullopt;
  const double factor = 1 / elements_of(made.outputs[0]);
  const double off = std::abs(*mean - factor * made.outputs[0].norms->sum);
  if (off > kProgramBound * factor * made.outputs[0].norms->one) return std::nullopt;
  return factor;
}

std::optional<double> factor_of(const DrillCall& call, const DrillCall& made) {
  if (const auto mean = factor_of_mean(call, made)) return mean;
  const auto to = number_of(call), from = number_of(made);
  if (!to || !from || call.inputs.size() != 1 || !is_product(call.name)) return std::nullopt;
  return *to / *from;
}

bool belongs(const DrillTensors& ranks, const DrillTensor& one) {
  const std::vector<double> ones(ranks.size(), 1.0);
  return fits(fit_each(ranks, one, ones, 0)) || fits(fit_rows(ranks, one, 1, 0)) ||
         may_fit(ranks, one);
}

// Whatever the order of its elements, the ranks' are not those of one device, nor alike.
bool is_of_each_rank(const DrillTensors& ranks, const DrillTensor& one) {
  const auto alike = [&](const DrillTensor* rank) {
    return rank->shape == ranks[0]->shape && rank->rows == ranks[0]->rows;
  };
  return !std::all_of(ranks.begin(), ranks.end(), alike) && !fits(fit_elements(ranks, one, 1, 0)) &&
         !fits(fit_all_elements(ranks, one, 0));
}

// Those of one place; nothing where ranks are given more or fewer.
std::optional<GivenNumbers> numbers_at(const GivenCalls& calls, size_t place) {
  GivenNumbers found;
  found.one = calls.one->numbers[place];
  for (const DrillCall* rank : calls.ranks) {
    if (rank->numbers.size() != calls.one->numbers.size()) return std::nullopt;
    found.ranks.push_back(rank->numbers[place]);
  }
  found.shared = std::all_of(found.ranks.begin(), found.ranks.end(),
                             [&](double own) { return own == found.ranks[0]; });
  return found;
}

}  // namespace

bool is_product(const std::string& function) {
  constexpr std::array<std::string_view, 8> kProducts = {
      "mul", "div", "truediv", "true_divide", "multiply", "divide", "mul_", "div_"};
  std::string name = function.substr(function.rfind('.') + 1);
  if (name.starts_with("__") && name.ends_with("__")) name = name.substr(2, name.size() - 4);
  if (name.starts_with("r") || name.starts_with("i")) name = name.substr(1);
  return std::find(kProducts.begin(), kProducts.end(), name) != kProducts.end();
}

std::optional<DrillPlace> differing_whole(const GivenCalls& calls) {
  std::optional<DrillPlace> kept;
  for (size_t i = 0; i < calls.one->wholes.size(); ++i) {
    DrillTensors ranks;
    for (const DrillCall* rank : calls.ranks)
      if (i < rank->wholes.size()) ranks.push_back(&rank->wholes[i].value);
    if (ranks.size() < calls.ranks.size()) return std::nullopt;  // they were given other things
    const DrillWhole& whole = calls.one->wholes[i];
    if (belongs(ranks, whole.value)) continue;
    DrillPlace place{whole.function, "", "", whole.line};
    if (!whole.function.empty()) return place;
    if (!kept && is_of_each_rank(ranks, whole.value)) kept = place;
  }
  return kept;
}

std::optional<GivenNumbers> differing_numbers(const GivenCalls& calls) {
  std::optional<GivenNumbers> shared;
  for (size_t i = 0; i < calls.one->numbers.size(); ++i) {
    auto given = numbers_at(calls, i);
    if (given && !given->shared) return given;
    const bool other =
        given && std::abs(given->ranks[0] - given->one) > kProgramRatioBound * std::abs(given->one);
    if (other && !shared) shared = given;
  }
  return shared;
}

std::optional<ScalarFactors> scalar_factors(const GivenCalls& calls, const GivenCalls& made) {
  ScalarFactors found;
  const auto one = factor_of(*calls.one, *made.one);
  if (!one) return std::nullopt;
  found.one = *one;
  for (size_t rank = 0; rank < calls.ranks.size(); ++rank) {
    const auto own = factor_of(*calls.ranks[rank], *made.ranks[rank]);
    if (!own) return std::nullopt;
    found.ranks.push_back(*own);
  }
  return found;
}

}  // namespace lockstep
