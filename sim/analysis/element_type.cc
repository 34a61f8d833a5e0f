#include "sim/analysis/element_type.h"

#include <algorithm>
#include <array>

namespace lockstep {

const ElementType* element_type_of(uint8_t code) {
  static constexpr std::array kTypes = {
      ElementType{0, "uint8", "Byte", 1},    ElementType{1, "int8", "Char", 1},
      ElementType{2, "int16", "Short", 2},   ElementType{3, "int32", "Int", 4},
      ElementType{4, "int64", "Long", 8},    ElementType{5, "float16", "Half", 2},
      ElementType{6, "float32", "Float", 4}, ElementType{7, "float64", "Double", 8},
      ElementType{11, "bool", "Bool", 1},    ElementType{15, "bfloat16", "BFloat16", 2}};
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const ElementType& type) { return type.code == code; });
  return found == kTypes.end() ? nullptr : &*found;
}

}  // namespace lockstep
