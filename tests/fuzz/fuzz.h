#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/error.h"

// What the targets of this folder share: each is one file with a LLVMFuzzerTestOneInput() that
// hands its bytes to a reader (docs/fuzzing.md).

namespace lockstep::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Whether these bytes are one of `n` inputs that get what is too slow for all: the same ones each
// time.
bool one_input_in(uint64_t n, const uint8_t* data, size_t size);

// A regular file that lies in memory alone.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Its path, until it is gone. Bytes that end with a growth() make a sparse file.
  const std::string& holding(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

// The last bytes of an input that ask for a file of `size` bytes: the rest of it is a hole.
std::string growth(uint64_t size);
inline constexpr std::string_view kGrows = "GROWS TO";
inline constexpr uint64_t kGrowsMost = uint64_t{1} << 36;
inline constexpr uint64_t kGrowsUsually = uint64_t{1} << 20;  // more than it, one input of 32

// A folder of this process, in memory where the machine has /dev/shm; removed at the end. With
// LOCKSTEP_FUZZ_FOLDER set it lies there.
const std::string& folder();
// Makes or replaces a file; growth() as above. An empty one is removed.
void leave(const std::string& path, std::string_view bytes);

// "a%b%c" at each `separator`: at most `most` parts, the last one whole.
std::vector<std::string_view> parts_of(std::string_view bytes, std::string_view separator,
                                       size_t most);

// Ends the process: a reader has broken what it promises.
void promised(bool kept, const char* what);
// Errors of a reader: each says something, in `most` bytes, and none is a text that could steer a
// terminal.
void check_errors(const InputErrors& errors, size_t most = 100'000);

}  // namespace lockstep::fuzz
