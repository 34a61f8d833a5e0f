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

bool alike_on_ranks(const DrillTensors& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const DrillTensor* rank) {
    return rank->shape == ranks[0]->shape && rank->rows == ranks[0]->rows;
  });
}

// Whatever the order of its elements, the ranks' are not those of one device, nor alike.
bool is_of_each_rank(const DrillTensors& ranks, const DrillTensor& one) {
  return !alike_on_ranks(ranks) && !fits(fit_elements(ranks, one, 1, 0)) &&
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

bool are_same(const ElementNorms& a, const ElementNorms& b) {
  return a.sum == b.sum && a.one == b.one && a.two == b.two && a.four == b.four;
}

// By the sum of what are whole numbers, and the sum of their squares.
bool are_with_offset(const DrillTensor& rank, const DrillTensor& one, size_t world) {
  if (!one.norms || one.shape[0] != rank.shape[0] * static_cast<int64_t>(world)) return false;
  const auto count = static_cast<double>(rank.shape[0]), ranks = static_cast<double>(world);
  const double offsets = count * ranks * (ranks - 1) / 2;
  const double squares = count * count * ranks * (ranks - 1) * (2 * ranks - 1) / 6;
  const double square = rank.norms->two * rank.norms->two;
  const double sum = ranks * rank.norms->sum + count * offsets;
  const double due = ranks * square + 2 * offsets * rank.norms->sum + count * squares;
  return world > 1 && count > 1 && std::abs(one.norms->sum - sum) < 0.5 &&
         std::abs(one.norms->two * one.norms->two / due - 1) < kProgramBound;
}

// "mul", of "torch.Tensor.__rmul__" as well.
std::string name_of_operator(const std::string& function) {
  std::string name = function.substr(function.rfind('.') + 1);
  if (name.starts_with("__") && name.ends_with("__")) name = name.substr(2, name.size() - 4);
  return name.starts_with("r") || name.starts_with("i") ? name.substr(1) : name;
}

}  // namespace

bool lack_offset(const GivenCalls& calls) {
  for (size_t i = 0; i < calls.one->indices.size(); ++i) {
    const auto is_alike = [&](const DrillCall* rank) {
      return rank->indices.size() == calls.one->indices.size() &&
             rank->indices[i].shape == calls.ranks[0]->indices[i].shape && rank->indices[i].norms &&
             are_same(*rank->indices[i].norms, *calls.ranks[0]->indices[i].norms);
    };
    if (std::all_of(calls.ranks.begin(), calls.ranks.end(), is_alike) &&
        are_with_offset(calls.ranks[0]->indices[i], calls.one->indices[i], calls.ranks.size()))
      return true;
  }
  return false;
}

bool is_product(const std::string& function) {
  constexpr std::array<std::string_view, 8> kProducts = {
      "mul", "div", "truediv", "true_divide", "multiply", "divide", "mul_", "div_"};
  return std::find(kProducts.begin(), kProducts.end(), name_of_operator(function)) !=
         kProducts.end();
}

bool is_addition(const std::string& function) {
  constexpr std::array<std::string_view, 5> kAdditions = {"add", "sub", "subtract", "add_", "sub_"};
  return std::find(kAdditions.begin(), kAdditions.end(), name_of_operator(function)) !=
         kAdditions.end();
}

std::optional<DifferingWhole> differing_whole(const GivenCalls& calls) {
  std::optional<DifferingWhole> kept;
  for (size_t i = 0; i < calls.one->wholes.size(); ++i) {
    DrillTensors ranks;
    for (const DrillCall* rank : calls.ranks)
      if (i < rank->wholes.size()) ranks.push_back(&rank->wholes[i].value);
    if (ranks.size() < calls.ranks.size()) return std::nullopt;  // they were given other things
    const DrillWhole& whole = calls.one->wholes[i];
    if (belongs(ranks, whole.value)) continue;
    const bool shared = whole.value.rows && whole.value.shape == ranks[0]->shape &&
                        alike_on_ranks(ranks);  // rows of samples may be alike by chance
    const DifferingWhole found{{whole.function, "", "", whole.line}, whole.kept, shared};
    if (!whole.function.empty()) return found;
    if (!kept && is_of_each_rank(ranks, whole.value)) kept = found;
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
