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
  using Json = nlohmann::ordered_json;
  if constexpr (std::same_as<T, bool>) {
    value.get_to(out);
  } else if (std::same_as<T, uint64_t> && value.is_number_unsigned()) {
    value.get_to(out);  // also beyond 2^63
  } else if constexpr (std::is_integral_v<T>) {
    const int64_t number = whole_number(value);
    if (!std::in_range<T>(number))
      throw Json::out_of_range::create(406, "the number is beyond its range", &value);
    out = static_cast<T>(number);
  } else {
    value.get_to(out);
  }
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
