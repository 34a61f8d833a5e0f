#include "sim/cli/output_files.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "sim/report/document.h"
#include "sim/report/terminal.h"

namespace lockstep {

void check_output(const char* option, const std::string& path, InputErrors* errors) {
  if (path.empty()) return;
  if (const auto why = why_not_writable(path))
    errors->push_back(option_error(fmt::format("{} {}", option, *why)));
}

int write_output(const char* option, const std::string& path, int code,
                 const std::function<std::string()>& text) {
  if (path.empty()) return code;
  try {
    write_atomically(path, text());
    return code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: error: {} {}\n", option, error.what());
    return kExitBadInput;
  }
}

}  // namespace lockstep
