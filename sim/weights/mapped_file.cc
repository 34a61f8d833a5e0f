#include "sim/weights/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"

namespace lockstep {

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  auto file = open_foreign_file(path, INT64_MAX);  // mapped: the size costs nothing
  if (!file) return file.errors();
  const auto size = static_cast<size_t>(file.value().bytes);
  if (size == 0) return file_error(path, "is empty");
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value().fd.get(), 0);
  if (data == MAP_FAILED) return file_error(path, std::strerror(errno));
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace lockstep
