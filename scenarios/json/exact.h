#pragma once

#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

#include "scenarios/json/json_text.h"

namespace lockstep {

// `value` of a document that no schema has seen, if it is just what `out` holds: a whole number
// within the type's range for a whole number, and so for each of a list; else the library's own
// conversion. Throws nlohmann::json::exception otherwise. The library alone converts 1e308 to int,
// which is undefined.
template <class T>
void get_exact(const nlohmann::ordered_json& value, T& out) {
  if constexpr (std::is_integral_v<T> && !std::same_as<T, bool>) {
    const bool beyond_int64 = std::same_as<T, uint64_t> && value.is_number_unsigned();
    if (!beyond_int64 && !std::in_range<T>(whole_number(value)))
      throw nlohmann::ordered_json::out_of_range::create(406, "the number is beyond its range",
                                                         &value);
  }
  value.get_to(out);
}

template <std::integral T>
void get_exact(const nlohmann::ordered_json& value, std::vector<T>& out) {
  if (!value.is_array())
    throw nlohmann::ordered_json::type_error::create(302, "a list is expected", &value);
  out.clear();
  for (const auto& item : value) get_exact(item, out.emplace_back());
}

template <class T>
T get_exact(const nlohmann::ordered_json& value) {
  T out{};
  get_exact(value, out);
  return out;
}

}  // namespace lockstep
