#include "sim/weights/dtype.h"

#include <array>
#include <utility>

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

}  // namespace lockstep
