#include "scenarios/base/number_text.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep {

std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string scientific(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value == 0 ? "0" : fmt::format("{:.1e}", value);
}

std::string digits_of(double value) {
  if (!std::isfinite(value)) return scientific(value);
  return fmt::format("{:.9g}", value);
}

std::string plural(int64_t count, const std::string& one, const std::string& many) {
  if (count == 1) return one;
  return many.empty() ? one + "s" : many;
}

}  // namespace lockstep
