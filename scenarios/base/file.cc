#include "scenarios/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

InputError cannot(const std::string& path, const char* what, int error) {
  return file_error(path, fmt::format("cannot be {}: {}", what, std::strerror(error)));
}

std::string size_text(int64_t bytes) {
  constexpr int64_t kMebi = int64_t{1} << 20;
  return bytes % kMebi == 0 ? fmt::format("{} MiB", bytes / kMebi) : fmt::format("{} bytes", bytes);
}

const char* name_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

InputError too_large(const std::string& path, int64_t most_bytes) {
  return file_error(path, "the file is too large", "at most " + size_text(most_bytes));
}

}  // namespace

Expected<ForeignFile> open_foreign_file(const std::string& path, int64_t most_bytes) {
  // Not blocking: a pipe of that name would wait for a writer.
  ForeignFile file{UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
  if (!file.fd.valid()) return cannot(path, "opened", errno);
  struct stat status;
  if (::fstat(file.fd.get(), &status) != 0) return cannot(path, "read", errno);
  if (!S_ISREG(status.st_mode))
    return file_error(path, fmt::format("this is {}", name_of(status.st_mode)), "a regular file");
  file.bytes = status.st_size;
  if (file.bytes > most_bytes) return too_large(path, most_bytes);
  return file;
}

Expected<std::string> read_foreign_file(const std::string& path, int64_t most_bytes) {
  auto file = open_foreign_file(path, most_bytes);
  if (!file) return file.errors();
  // Files of /proc say that they hold nothing: read until the end, not until the size.
  constexpr size_t kPiece = size_t{1} << 16;
  std::string bytes(static_cast<size_t>(file.value().bytes) + 1, '\0');
  size_t used = 0;
  for (;;) {
    if (used == bytes.size()) bytes.resize(used + std::max(used, kPiece));
    const ssize_t got = ::read(file.value().fd.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot(path, "read", errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (static_cast<int64_t>(used) > most_bytes) return too_large(path, most_bytes);
  }
  bytes.resize(used);
  return bytes;
}

bool read_at(int fd, int64_t offset, void* out, size_t bytes) {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, to, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) errno = 0;
      return false;
    }
    to += got;
    offset += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace lockstep
