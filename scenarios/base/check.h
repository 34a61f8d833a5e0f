#pragma once

#include <string_view>

namespace lockstep {

// Prints "lockstep: internal error: ..." with the place and aborts. Never returns.
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               std::string_view message);

}  // namespace lockstep

// A promise that our own code makes to itself. Broken, it aborts in release too (CONTRIBUTING.md):
// bad input and failures of peers must never end here.
#define LOCKSTEP_CHECK(condition, message)                                 \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::lockstep::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)
