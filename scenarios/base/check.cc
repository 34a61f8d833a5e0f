#include "scenarios/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep {

void check_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "lockstep: internal error: %.*s (%s at %s:%d)\n",
               static_cast<int>(message.size()), message.data(), condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep
