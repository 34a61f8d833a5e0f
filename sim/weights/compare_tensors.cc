#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "scenarios/base/error.h"
#include "sim/weights/comparison.h"

namespace lockstep {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Walks over all elements in row-major order, a row (the last axis) at a time.
template <class Row>
void for_each_row(const CheckpointTensor& a, const CheckpointTensor& b, Row&& row) {
  const size_t axes = a.shape.size();
  if (a.numel() == 0) return;
  if (axes == 0) return row(int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, int64_t{1});
  if (a.contiguous() && b.contiguous())
    return row(int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, a.numel());
  std::vector<int64_t> at(axes - 1);
  int64_t a_at = 0, b_at = 0;
  for (;;) {
    row(a_at, b_at, a.strides.back(), b.strides.back(), a.shape.back());
    size_t axis = axes - 1;
    for (; axis > 0; --axis) {
      const size_t i = axis - 1;
      a_at += a.strides[i];
      b_at += b.strides[i];
      if (++at[i] < a.shape[i]) break;
      a_at -= at[i] * a.strides[i];
      b_at -= at[i] * b.strides[i];
      at[i] = 0;
    }
    if (axis == 0) return;
  }
}

template <class Number>
class Differences {
 public:
  using Bits = typename Number::Bits;
  Differences(const Tolerance& tolerance, int parts) : tolerance_(tolerance), parts_(parts) {}

  void row(const std::byte* a, const std::byte* b, int64_t a_stride, int64_t b_stride,
           int64_t count) {
    const auto width = static_cast<int64_t>(sizeof(Bits)) * parts_;
    for (int64_t i = 0; i < count; ++i, ++element_) {
      bool differs = false, disagrees = false;
      for (int part = 0; part < parts_; ++part) {
        const auto offset = static_cast<int64_t>(sizeof(Bits)) * part;
        one(load(a + i * a_stride * width + offset), load(b + i * b_stride * width + offset),
            &differs, &disagrees);
      }
      found_.differing += differs ? 1 : 0;
      found_.disagreeing += disagrees ? 1 : 0;
    }
  }
  std::optional<TensorDifference> found() const {
    if (found_.differing == 0) return std::nullopt;
    return found_;
  }

 private:
  static Bits load(const std::byte* from) {
    Bits bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  }

  void one(Bits a, Bits b, bool* differs, bool* disagrees) {
    const double y = Number::value(b);
    if (std::isfinite(y)) found_.largest_of_b = std::max(found_.largest_of_b, std::abs(y));
    if (a == b) return;
    const double x = Number::value(a);
    *differs = true;
    const uint64_t ulp = Number::ulp(a, b);
    const double error = error_of(x, y, ulp);
    const bool agrees =
        !tolerance_.bitwise() &&
        ((std::isnan(x) && std::isnan(y)) ||
         (std::isfinite(error) && error <= tolerance_.atol + tolerance_.rtol * std::abs(y)));
    found_.max_ulp = std::max(found_.max_ulp, ulp);
    found_.largest_error = std::max(found_.largest_error, error);
    if (agrees) return;
    if (found_.disagreeing == 0 && !*disagrees) {
      found_.element = element_;
      found_.a_value = x;
      found_.b_value = y;
      found_.a_bits = a;
      found_.b_bits = b;
      found_.ulp = ulp;
    }
    *disagrees = true;
  }

  // Of integers their distance, which doubles of both might lose.
  static double error_of(double x, double y, uint64_t ulp) {
    if constexpr (requires { typename Number::Integer; }) return static_cast<double>(ulp);
    if (std::isnan(x) && std::isnan(y)) return 0;
    const double error = std::abs(x - y);
    return std::isnan(error) ? kInfinite : error;
  }

  const Tolerance& tolerance_;
  int parts_;
  int64_t element_ = 0;
  TensorDifference found_;
};

bool same_bytes(const CheckpointTensor& a, const CheckpointTensor& b) {
  if (!a.contiguous() || !b.contiguous()) return false;
  return std::memcmp(a.first, b.first, static_cast<size_t>(a.numel() * bytes_of(a.dtype))) == 0;
}

}  // namespace

double TensorDifference::relative_error() const {
  if (largest_error == 0) return 0;
  return largest_of_b > 0 ? largest_error / largest_of_b : kInfinite;
}

std::optional<TensorDifference> compare_tensors(const CheckpointTensor& a,
                                                const CheckpointTensor& b,
                                                const Tolerance& tolerance) {
  LOCKSTEP_CHECK(a.dtype == b.dtype && a.shape == b.shape, "tensors that cannot be compared");
  if (same_bytes(a, b)) return std::nullopt;
  const int64_t width = bytes_of(a.dtype);
  return with_number(a.dtype, [&](auto number) {
    Differences<decltype(number)> differences(tolerance, is_complex(a.dtype) ? 2 : 1);
    for_each_row(
        a, b, [&](int64_t a_at, int64_t b_at, int64_t a_stride, int64_t b_stride, int64_t count) {
          differences.row(a.first + a_at * width, b.first + b_at * width, a_stride, b_stride,
                          count);
        });
    return differences.found();
  });
}

}  // namespace lockstep
