#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "scenarios/base/error.h"

namespace lockstep {

// Owns one file descriptor; -1 is none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// The one way to open a file that somebody else made: a scenario of a pull request, a trace, a
// checkpoint, a kept run. Whatever the path leads to, neither call blocks, and neither takes more
// memory than its limit.

// Text that people write or tools print: scenarios, machines, profiles, goldens.
inline constexpr int64_t kTextBytesMost = int64_t{16} << 20;
// Results and manifests of many runs.
inline constexpr int64_t kResultBytesMost = int64_t{512} << 20;

struct ForeignFile {
  UniqueFd fd;  // for reading, close-on-exec, at its start
  int64_t bytes = 0;
};

// Bad input: the file cannot be opened, is no regular file (a directory, a pipe, a device), or
// holds more than `most_bytes`.
Expected<ForeignFile> open_foreign_file(const std::string& path, int64_t most_bytes);

// The whole content. Bad input also where reading fails, or where the file grows past its limit
// meanwhile.
Expected<std::string> read_foreign_file(const std::string& path,
                                        int64_t most_bytes = kTextBytesMost);

// `bytes` bytes from `offset`; false where there are fewer or reading fails (errno tells, 0:
// fewer).
bool read_at(int fd, int64_t offset, void* out, size_t bytes);

}  // namespace lockstep
