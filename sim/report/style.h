#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Colour only ever means verdict: green pass, red fail, yellow inconclusive.
class Style {
 public:
  explicit Style(bool color) : color_(color) {}
  // `text` in the colour of `verdict`; any other word leaves it as it is.
  std::string verdict(const std::string& verdict, const std::string& text) const;
  bool color() const { return color_; }

 private:
  bool color_;
};

// --color auto|always|never for a file descriptor; NO_COLOR and TERM=dumb turn auto off.
bool wants_color(const std::string& when, int fd);

// 1004311 -> "1,004,311"
std::string grouped(int64_t number);
// "3.1e-16", "0" for exactly zero, "NaN"
std::string scientific(double value);
// Nine significant digits: enough to tell two floats apart. "NaN", "Infinity".
std::string digits_of(double value);
// A path below the user's home as "~/...".
std::string short_path(const std::string& path);
// "run", "runs"
std::string plural(int64_t count, const std::string& one, const std::string& many = "");

}  // namespace lockstep
