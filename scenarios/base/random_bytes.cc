#include "scenarios/base/random_bytes.h"

#include <sys/random.h>
#include <sys/types.h>

#include <cerrno>

#include "scenarios/base/error.h"

namespace lockstep {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t n = ::getrandom(bytes.data() + done, count - done, 0);
    LOCKSTEP_CHECK(n > 0 || errno == EINTR, "getrandom gives no bytes");
    if (n > 0) done += static_cast<size_t>(n);
  }
  return bytes;
}

}  // namespace lockstep
