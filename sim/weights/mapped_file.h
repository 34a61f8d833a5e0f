#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// A regular file's bytes, mapped for reading: only what is looked at comes from the disk. A file
// that another program cuts short meanwhile ends this one by SIGBUS, as with every mapping.
class MappedFile {
 public:
  // Bad input: no such file, no regular file, not readable.
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace lockstep
