#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <type_traits>

namespace lockstep {

// An option's number, from `least` to `most`. Not CLI::Range, which lets NaN through and says
// nothing of the range where the text is no number at all.
template <class T>
CLI::Validator between(T least, T most) {
  const auto check = [=](const std::string& text) -> std::string {
    T value{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return "";
    return fmt::format("\"{}\"; expected {} from {} to {}", text,
                       std::is_floating_point_v<T> ? "a number" : "an integer", least, most);
  };
  return CLI::Validator(check, "");
}

}  // namespace lockstep
