#include "scenarios/base/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "scenarios/base/text.h"

namespace lockstep {

void check_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "lockstep: internal error: %.*s (%s at %s:%d)\n",
               static_cast<int>(message.size()), message.data(), condition, file, line);
  std::fflush(stderr);
  std::abort();
}

InputError file_error(const std::string& path, const std::string& message,
                      const std::string& allowed) {
  InputError error = option_error(message, allowed);
  error.file = path;
  return error;
}

InputError option_error(const std::string& message, const std::string& allowed) {
  InputError error;
  error.message = message;
  error.allowed = allowed;
  return error;
}

std::string to_text(const InputError& error, std::string_view severity) {
  std::string place = error.file.empty() ? "lockstep" : error.file;
  if (error.line > 0) place += fmt::format(":{}", error.line);
  if (error.line > 0 && error.column > 0) place += fmt::format(":{}", error.column);
  std::string text = fmt::format("{}: {}: {}", place, severity, error.message);
  if (!error.allowed.empty()) text += fmt::format("; expected {}", error.allowed);
  return printable(text);
}

}  // namespace lockstep
