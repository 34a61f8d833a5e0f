#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace lockstep {

// The scenario's word for a dtype ("float32", "float64", "bfloat16") and LibTorch's; other words
// abort.
c10::ScalarType scalar_type(const std::string& dtype);
// Of any tensor that a model or optimizer holds: "float32", "int64".
const char* to_word(c10::ScalarType type);

}  // namespace lockstep
