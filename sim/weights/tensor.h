#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden/compare.h"
#include "golden/half_types.h"
#include "scenarios/base/error.h"

namespace lockstep {

// Types of the elements of a checkpoint. Their words are PyTorch's ("float32").
enum class Dtype : uint8_t {
  float64,
  float32,
  float16,
  bfloat16,
  float8_e4m3fn,
  float8_e5m2,
  complex128,
  complex64,
  int64,
  int32,
  int16,
  int8,
  uint64,
  uint32,
  uint16,
  uint8,
  boolean  // "bool"
};
const char* to_word(Dtype dtype);
std::optional<Dtype> dtype_of_word(const std::string& word);
// Of an element; of complex numbers both parts.
int64_t bytes_of(Dtype dtype);
bool is_complex(Dtype dtype);

inline constexpr uint64_t kNoUlp = std::numeric_limits<uint64_t>::max();  // not both finite

// How numbers of one type are read and told apart. Bits: of a number, of a complex one of a part.
template <class Float, std::unsigned_integral Word>
struct FloatNumber {
  using Bits = Word;
  static double value(Bits bits) { return static_cast<double>(std::bit_cast<Float>(bits)); }
  static uint64_t ulp(Bits a, Bits b) {
    return ulp_distance(std::bit_cast<Float>(a), std::bit_cast<Float>(b));
  }
};

// Floats that the machine has no type for, with `To` to make a float of them.
template <class To, std::unsigned_integral Word>
struct SmallNumber {
  using Bits = Word;
  static double value(Bits bits) { return To{}(bits); }
  static uint64_t ulp(Bits a, Bits b) {
    if (a == b) return 0;
    if (!std::isfinite(value(a)) || !std::isfinite(value(b))) return kNoUlp;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
    const int64_t x = a & ~kSign, y = b & ~kSign;
    const int64_t distance = (a & kSign) != (b & kSign) ? x + y : x - y;
    return static_cast<uint64_t>(distance < 0 ? -distance : distance);
  }
};

template <class Int>
struct IntNumber {
  using Integer = Int;
  using Bits = std::make_unsigned_t<Int>;
  static double value(Bits bits) { return static_cast<double>(static_cast<Int>(bits)); }
  static uint64_t ulp(Bits a, Bits b) {
    const auto x = static_cast<Int>(a), y = static_cast<Int>(b);
    return x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
                 : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
  }
};

struct OfHalf {
  double operator()(uint16_t bits) const {
    Float16 half;
    half.bits = bits;
    return static_cast<double>(static_cast<float>(half));
  }
};
struct OfBrain {
  double operator()(uint16_t bits) const {
    Brain16 brain;
    brain.bits = bits;
    return static_cast<double>(static_cast<float>(brain));
  }
};
struct OfE5M2 {  // the upper half of a float16
  double operator()(uint8_t bits) const { return OfHalf{}(static_cast<uint16_t>(bits << 8)); }
};
struct OfE4M3 {
  double operator()(uint8_t bits) const {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
    const double size =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (bits & 0x80) != 0 ? -size : size;
  }
};

// Calls `use` with the traits above that fit.
template <class F>
decltype(auto) with_number(Dtype dtype, F&& use) {
  switch (dtype) {
    case Dtype::float64:
    case Dtype::complex128:
      return use(FloatNumber<double, uint64_t>{});
    case Dtype::float32:
    case Dtype::complex64:
      return use(FloatNumber<float, uint32_t>{});
    case Dtype::float16:
      return use(SmallNumber<OfHalf, uint16_t>{});
    case Dtype::bfloat16:
      return use(SmallNumber<OfBrain, uint16_t>{});
    case Dtype::float8_e4m3fn:
      return use(SmallNumber<OfE4M3, uint8_t>{});
    case Dtype::float8_e5m2:
      return use(SmallNumber<OfE5M2, uint8_t>{});
    case Dtype::int64:
      return use(IntNumber<int64_t>{});
    case Dtype::int32:
      return use(IntNumber<int32_t>{});
    case Dtype::int16:
      return use(IntNumber<int16_t>{});
    case Dtype::int8:
      return use(IntNumber<int8_t>{});
    case Dtype::uint64:
      return use(IntNumber<uint64_t>{});
    case Dtype::uint32:
      return use(IntNumber<uint32_t>{});
    case Dtype::uint16:
      return use(IntNumber<uint16_t>{});
    default:
      return use(IntNumber<uint8_t>{});
  }
}

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

// A checkpoint is not what it should be: what is wrong, and where in the file. Who reads
// one (read_export(), read_weights_file()) makes bad input of it.
class WrongBytes : public std::runtime_error {
 public:
  explicit WrongBytes(const std::string& what, std::string allowed = "")
      : std::runtime_error(printable(what)), allowed_(std::move(allowed)) {}
  const std::string& allowed() const { return allowed_; }

 private:
  // Names from the file are part of the sentence: they are not to steer a terminal, nor to fill it.
  static std::string printable(std::string text) {
    constexpr size_t kMost = 400;
    if (text.size() > kMost) {
      text.resize(kMost);
      text += "...";
    }
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return text;
  }
  std::string allowed_;
};

// A tensor as it lies in a file. Element [i, j, ...] is at `first` + i * strides[0] + ... elements;
// the reader has seen to it that every one of them is within the file.
struct CheckpointTensor {
  std::string name;  // path through nested dictionaries: "optimizer/state/0/exp_avg"
  Dtype dtype = Dtype::float32;
  std::vector<int64_t> shape;        // empty: a scalar, or a plain number
  std::vector<int64_t> strides;      // in elements, as long as shape
  const std::byte* first = nullptr;  // into the file; null in a comparison's result
  int64_t numel() const;
  bool contiguous() const;
};

// In elements, of a tensor without gaps; sizes of 0 count as 1. Throws WrongBytes where they
// overflow.
std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape, const std::string& what);

// Gives `tensor` its numbers: elements from `offset` on of a storage, by its strides. Throws if one
// lies outside; `what` names the tensor in the error.
void place(std::span<const std::byte> storage, int64_t offset, const std::string& what,
           CheckpointTensor* tensor);

}  // namespace lockstep
