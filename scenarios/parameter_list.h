#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// Model "parameters": any model by the names and shapes of its parameters, in the order in which it
// registers them. In a scenario each is one text, "conv1.weight 64x3x7x7".

struct ListedParameter {
  std::string name;            // without blanks
  std::vector<int64_t> shape;  // one dimension at least, each of 1 at least
};

inline constexpr int64_t kMostListedElements = int64_t{1} << 30;  // of one parameter
inline constexpr size_t kMostListed = 65'536;

// Nothing where it is none.
std::optional<ListedParameter> listed_parameter(std::string_view text);
std::string to_text(const ListedParameter& parameter);

struct ParameterList {
  std::vector<ListedParameter> parameters;
  std::string dtype;  // of their gradients; empty: the file does not say
};

// Those of a file:
//   JSON: {"conv1.weight": [64, 3, 7, 7], ...}, in the file's order
//   safetensors: of its header alone. It is not in the order of registration, which such a file
//   does not keep, but in that of the names, numbers in them as numbers.
//   Kineto: a trace of torch.profiler, packed by gzip or not. "parameter0" is the last whose
//   gradient came (scenarios/profiler/kineto_training.h): their reverse order stands in for that of
//   registration, and each is a layer of its own.
// Running statistics and counts of batches are buffers, and left out. Bad input: the file, with the
// place where it is JSON.
Expected<ParameterList> read_parameter_list(const std::string& path);

}  // namespace lockstep
