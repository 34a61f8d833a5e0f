#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "sim/report/document.h"

namespace lockstep {
namespace {

std::string temporary_of(const std::string& path) {
  return fmt::format("{}.{}.unfinished", path, getpid());
}

bool is_special(const std::string& path) {  // a device, a pipe: written to, never replaced
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), path);
}

void write_all(int fd, const std::string& path, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      close(fd);
      fail(path, error);
    }
    done += static_cast<size_t>(n);
  }
  if (close(fd) != 0) fail(path, errno);
}

}  // namespace

std::optional<std::string> why_not_writable(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return path + ": is a directory";
  if (is_special(path)) {
    if (access(path.c_str(), W_OK) == 0) return std::nullopt;
    return fmt::format("{}: {}", path, strerror(errno));
  }
  const std::string temporary = temporary_of(path);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return fmt::format("{}: {}", path, strerror(errno));
  close(fd);
  unlink(temporary.c_str());
  return std::nullopt;
}

void write_atomically(const std::string& path, const std::string& text) {
  const bool special = is_special(path);
  const std::string target = special ? path : temporary_of(path);
  const int flags = O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_TRUNC);
  const int fd = open(target.c_str(), flags, 0666);
  if (fd < 0) fail(path, errno);
  if (special) return write_all(fd, path, text);
  try {
    write_all(fd, path, text);
  } catch (...) {
    unlink(target.c_str());
    throw;
  }
  if (std::rename(target.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(target.c_str());
    fail(path, error);
  }
}

}  // namespace lockstep
