#include "sim/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "scenarios/base/error.h"
#include "scenarios/base/unique_fd.h"

namespace lockstep {

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  // Not blocking: a pipe of that name would wait for a writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return file_error(path, std::strerror(errno));
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) return file_error(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return file_error(path, "is no regular file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return file_error(path, "is empty");
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return file_error(path, std::strerror(errno));
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace lockstep
