#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace lockstep {

// All NaNs are alike: what one carries depends on which operand a compiler puts first.
template <class T>
bool same_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace lockstep
