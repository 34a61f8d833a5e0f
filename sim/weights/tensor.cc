#include "sim/weights/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <algorithm>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"

namespace lockstep {
namespace {

struct Description {
  const char* word;
  int64_t bytes;
};
constexpr std::array<Description, 17> kDtypes = {{{"float64", 8},
                                                  {"float32", 4},
                                                  {"float16", 2},
                                                  {"bfloat16", 2},
                                                  {"float8_e4m3fn", 1},
                                                  {"float8_e5m2", 1},
                                                  {"complex128", 16},
                                                  {"complex64", 8},
                                                  {"int64", 8},
                                                  {"int32", 4},
                                                  {"int16", 2},
                                                  {"int8", 1},
                                                  {"uint64", 8},
                                                  {"uint32", 4},
                                                  {"uint16", 2},
                                                  {"uint8", 1},
                                                  {"bool", 1}}};

}  // namespace

const char* to_word(Dtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)).word; }

std::optional<Dtype> dtype_of_word(const std::string& word) {
  for (size_t i = 0; i < kDtypes.size(); ++i)
    if (word == kDtypes.at(i).word) return static_cast<Dtype>(i);
  return std::nullopt;
}

int64_t bytes_of(Dtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)).bytes; }

bool is_complex(Dtype dtype) { return dtype == Dtype::complex64 || dtype == Dtype::complex128; }

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

int64_t CheckpointTensor::numel() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

bool CheckpointTensor::contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape, const std::string& what) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride))
      throw WrongBytes(what + " has a shape beyond any file");
  }
  return strides;
}

// The largest index is found without overflow: sizes and strides are not trusted.
void place(std::span<const std::byte> storage, int64_t offset, const std::string& what,
           CheckpointTensor* tensor) {
  const auto outside = [&] {
    return WrongBytes(
        fmt::format("{}: shape [{}] with strides [{}] from element {} on leaves its "
                    "storage of {} bytes",
                    what, fmt::join(tensor->shape, ", "), fmt::join(tensor->strides, ", "), offset,
                    storage.size()));
  };
  const int64_t width = bytes_of(tensor->dtype);
  const auto available = static_cast<int64_t>(storage.size()) / width;
  int64_t numel = 1, last = offset;
  if (offset < 0) throw outside();
  for (size_t i = 0; i < tensor->shape.size(); ++i) {
    const int64_t size = tensor->shape[i], stride = tensor->strides[i];
    int64_t reach = 0;
    if (size < 0 || stride < 0 || __builtin_mul_overflow(numel, size, &numel) ||
        numel > (int64_t{1} << 48) ||
        __builtin_mul_overflow(std::max<int64_t>(size - 1, 0), stride, &reach) ||
        __builtin_add_overflow(last, reach, &last))
      throw outside();
  }
  if (numel == 0 ? offset > available : last >= available) throw outside();
  tensor->first = storage.data() + offset * width;
}

}  // namespace lockstep
