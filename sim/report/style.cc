#include "sim/report/style.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace lockstep {

std::string Style::verdict(const std::string& verdict, const std::string& text) const {
  if (!color_) return text;
  const char* code = verdict == "pass"                                ? "32"
                     : verdict == "fail"                              ? "31"
                     : verdict == "inconclusive" || verdict == "void" ? "33"
                                                                      : nullptr;
  return code == nullptr ? text : fmt::format("\033[{}m{}\033[0m", code, text);
}

bool wants_color(const std::string& when, int fd) {
  if (when != "auto") return when == "always";
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::strcmp(term, "dumb") == 0) return false;
  return isatty(fd) == 1;
}

std::string short_path(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/' || home[1] == '\0') return path;
  const std::string prefix = std::string(home) + "/";
  return path.compare(0, prefix.size(), prefix) == 0 ? "~/" + path.substr(prefix.size()) : path;
}

}  // namespace lockstep
