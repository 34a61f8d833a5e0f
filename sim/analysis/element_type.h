#pragma once

#include <cstdint>

namespace lockstep {

// Types of elements as records number them (ATen's ScalarType), as far as collectives carry them.
struct ElementType {
  uint8_t code;
  const char* word;        // "float32", as scenarios and reports have it
  const char* torch_name;  // "Float", as PyTorch's dumps have it
  int64_t bytes;
};

// Null for a number that is none of them.
const ElementType* element_type_of(uint8_t code);

}  // namespace lockstep
