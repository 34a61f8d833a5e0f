#include "scenarios/version_range.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

// The numbers at the start of `text`, which is left with what follows them.
std::vector<int> take_numbers(std::string_view* text) {
  std::vector<int> numbers;
  for (std::string_view rest = *text;;) {
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) return numbers;
    numbers.push_back(number);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    *text = rest;
    if (!rest.starts_with('.')) return numbers;
    rest.remove_prefix(1);
  }
}

// As far as the bound says anything.
std::strong_ordering compare(std::vector<int> version, const std::vector<int>& bound) {
  version.resize(bound.size());
  return std::lexicographical_compare_three_way(version.begin(), version.end(), bound.begin(),
                                                bound.end());
}

bool satisfies_bounds(const std::string& comparison, std::strong_ordering order) {
  if (comparison == "<") return std::is_lt(order);
  if (comparison == "<=") return std::is_lteq(order);
  if (comparison == ">") return std::is_gt(order);
  if (comparison == ">=") return std::is_gteq(order);
  return std::is_eq(order);
}

}  // namespace

std::optional<VersionRange> VersionRange::parse(const std::string& text) {
  VersionRange range;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.starts_with('+') && word.size() > 1) {
      range.tags_.push_back(word);
      continue;
    }
    const size_t digits = word.find_first_not_of("<>=");
    if (digits == std::string::npos) return std::nullopt;
    Bound bound{word.substr(0, digits), {}};
    static const std::vector<std::string> kComparisons = {"", "=", "<", "<=", ">", ">="};
    std::string_view rest = std::string_view(word).substr(digits);
    bound.numbers = take_numbers(&rest);
    if (bound.numbers.empty() || !rest.empty() ||
        std::find(kComparisons.begin(), kComparisons.end(), bound.comparison) == kComparisons.end())
      return std::nullopt;
    range.bounds_.push_back(std::move(bound));
  }
  if (range.bounds_.empty() && range.tags_.empty()) return std::nullopt;
  return range;
}

bool VersionRange::contains(const std::string& version) const {
  std::string_view rest = version;
  const std::vector<int> numbers = take_numbers(&rest);
  const auto holds = [&](const Bound& bound) {
    return satisfies_bounds(bound.comparison, compare(numbers, bound.numbers));
  };
  const auto has = [&](const std::string& tag) { return rest.find(tag) != std::string_view::npos; };
  return !numbers.empty() && std::all_of(bounds_.begin(), bounds_.end(), holds) &&
         std::all_of(tags_.begin(), tags_.end(), has);
}

}  // namespace lockstep
