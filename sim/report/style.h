#pragma once

#include <string>

#include "scenarios/base/text.h"

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

// A path below the user's home as "~/...".
std::string short_path(const std::string& path);
}  // namespace lockstep
