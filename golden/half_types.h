#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep {

// Numbers of 16 bits, added as every CPU without half arithmetic does it: in float, then rounded to
// the nearest, ties to even. Memory layouts are those of LibTorch's and Gloo's types.

struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>(word >> 16 & 0x8000);
    const uint32_t magnitude = word & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      bits = sign | 0x7e00;  // not a number
    } else if (magnitude >= 0x47800000) {
      bits = sign | 0x7c00;               // 65536 and more
    } else if (magnitude < 0x38800000) {  // below 2^-14: multiples of 2^-24
      bits =
          sign | static_cast<uint16_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24F));
    } else {  // a carry out of the mantissa goes where it belongs: into the exponent
      const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
      bits = sign | static_cast<uint16_t>((rounded >> 13) - (112 << 10));
    }
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    float magnitude;
    if (exponent == 0)
      magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    else if (exponent == 31)
      magnitude = std::bit_cast<float>(0x7f800000 | mantissa << 13);
    else
      magnitude = std::bit_cast<float>((exponent + 112) << 23 | mantissa << 13);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
};

struct Brain16 {
  uint16_t bits = 0;

  Brain16() = default;
  explicit Brain16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffff) > 0x7f800000)
      bits = 0x7fc0;
    else
      bits = static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

inline Float16 operator+(Float16 a, Float16 b) {
  return Float16(static_cast<float>(a) + static_cast<float>(b));
}
inline Brain16 operator+(Brain16 a, Brain16 b) {
  return Brain16(static_cast<float>(a) + static_cast<float>(b));
}

}  // namespace lockstep
