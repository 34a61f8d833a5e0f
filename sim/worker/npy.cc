#include "sim/worker/npy.h"

#include <fmt/format.h>

#include <bit>
#include <fstream>
#include <stdexcept>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "descriptions below say '<'");

const char* descr_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "<f4";
    case at::kDouble:
      return "<f8";
    case at::kHalf:
      return "<f2";
    case at::kBFloat16:
      return "<u2";
    case at::kLong:
      return "<i8";
    case at::kInt:
      return "<i4";
    case at::kByte:
      return "|u1";
    case at::kBool:
      return "|b1";
    default:
      LOCKSTEP_CHECK(false, "no export of such numbers");
  }
}

}  // namespace

std::string npy_header(const std::string& descr, at::IntArrayRef shape) {
  std::string sizes;
  for (int64_t size : shape) sizes += fmt::format("{}, ", size);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, sizes);
  constexpr size_t kBefore = 10, kAlignment = 64;
  const size_t used = kBefore + text.size() + 1;
  text.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

void write_npy(const std::string& path, const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().cpu().contiguous();
  const std::string header = npy_header(descr_of(dense.scalar_type()), dense.sizes());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.write(static_cast<const char*>(dense.data_ptr()),
             static_cast<std::streamsize>(dense.nbytes()));
  file.flush();
  if (!file) throw std::runtime_error("could not write " + path);
}

}  // namespace lockstep
