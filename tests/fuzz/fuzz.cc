#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"

namespace lockstep::fuzz {
namespace {

// Of the bytes, those that stand in the file, and how long it is.
struct Grown {
  std::string_view bytes;
  uint64_t size = 0;
};

// Of the inputs that ask for more than `kGrowsUsually` one of so many gets it: a reader may take a
// hole of 512 MiB into memory, which takes longer than hundreds of other inputs.
constexpr uint64_t kLargeShare = 32;

Grown grown(std::string_view bytes) {
  constexpr size_t kTail = kGrows.size() + sizeof(uint64_t);
  if (bytes.size() < kTail || bytes.substr(bytes.size() - kTail, kGrows.size()) != kGrows)
    return {bytes, bytes.size()};
  uint64_t size = 0;
  std::memcpy(&size, bytes.data() + bytes.size() - sizeof size, sizeof size);
  size %= kGrowsMost;
  if (size > kGrowsUsually && hash64(bytes.data(), bytes.size()) % kLargeShare != 0)
    size = kGrowsUsually;
  bytes.remove_suffix(kTail);
  return {bytes, std::max<uint64_t>(bytes.size(), size)};
}

void fill(int fd, std::string_view bytes) {
  const Grown file = grown(bytes);
  // Shortened first: what an earlier input left must not show through.
  promised(::ftruncate(fd, 0) == 0, "room for the input");
  promised(::pwrite(fd, file.bytes.data(), file.bytes.size(), 0) ==
               static_cast<ssize_t>(file.bytes.size()),
           "room for the input");
  promised(::ftruncate(fd, static_cast<off_t>(file.size)) == 0, "room for the input");
}

std::string make_folder() {
  const char* given = std::getenv("LOCKSTEP_FUZZ_FOLDER");
  const std::string base = given != nullptr                      ? given
                           : std::filesystem::exists("/dev/shm") ? "/dev/shm"
                                                                 : "/tmp";
  std::string name = base + "/lockstep-fuzz-XXXXXX";
  promised(::mkdtemp(name.data()) != nullptr, "a folder for files");
  return name;
}

void remove_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder(), ignored);
}

}  // namespace

bool one_input_in(uint64_t n, const uint8_t* data, size_t size) {
  return hash64(data, size) % n == 0;
}

MemoryFile::MemoryFile()
    : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
  promised(fd_ >= 0, "a file in memory");
}

MemoryFile::~MemoryFile() { ::close(fd_); }

const std::string& MemoryFile::holding(std::string_view bytes) {
  fill(fd_, bytes);
  return path_;
}

std::string growth(uint64_t size) {
  std::string tail(kGrows);
  tail.append(reinterpret_cast<const char*>(&size), sizeof size);
  return tail;
}

const std::string& folder() {
  static const std::string& made = []() -> const std::string& {
    std::atexit(remove_folder);
    return *new const std::string(make_folder());  // it is asked for until the very end
  }();
  return made;
}

void leave(const std::string& path, std::string_view bytes) {
  if (bytes.empty()) {
    ::unlink(path.c_str());
    return;
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  promised(fd >= 0, "a file for the input");
  fill(fd, bytes);
  ::close(fd);
}

std::vector<std::string_view> parts_of(std::string_view bytes, std::string_view separator,
                                       size_t most) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; parts.size() + 1 < most && (at = bytes.find(separator)) != bytes.npos;) {
    parts.push_back(bytes.substr(0, at));
    bytes.remove_prefix(at + separator.size());
  }
  parts.push_back(bytes);
  return parts;
}

void promised(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

void check_errors(const InputErrors& errors, size_t most) {
  promised(!errors.empty(), "a refusal says why");
  for (const InputError& error : errors) {
    const std::string text = to_text(error);
    promised(!error.message.empty(), "an error says what is wrong");
    promised(text.size() < most, "an error is no longer than a screen or two");
    const std::string shown = printable_lines(text);
    promised(printable_lines(shown) == shown, "what was filtered once is as it stays");
  }
}

}  // namespace lockstep::fuzz
