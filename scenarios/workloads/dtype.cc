#include "scenarios/workloads/dtype.h"

#include "scenarios/base/check.h"

namespace lockstep {

c10::ScalarType scalar_type(const std::string& dtype) {
  if (dtype == "float64") return c10::ScalarType::Double;
  if (dtype == "bfloat16") return c10::ScalarType::BFloat16;
  LOCKSTEP_CHECK(dtype == "float32", "no dtype " + dtype);
  return c10::ScalarType::Float;
}

const char* to_word(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::Double:
      return "float64";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Int:
      return "int32";
    case c10::ScalarType::Long:
      return "int64";
    case c10::ScalarType::Byte:
      return "uint8";
    case c10::ScalarType::Bool:
      return "bool";
    default:
      LOCKSTEP_CHECK(false, "no word for a dtype");
  }
}

}  // namespace lockstep
