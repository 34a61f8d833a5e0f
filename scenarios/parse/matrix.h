#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/pointer.h"
#include "scenarios/parse/suite.h"

namespace lockstep {

inline constexpr int64_t kMostCombinations = 100'000;

// One axis: a pointer, its values, and where they stand in the file's list.
struct Axis {
  std::string pointer;
  bool each = false;  // of a pairwise matrix: every value meets all pairs
  std::vector<nlohmann::ordered_json> values;
  std::vector<size_t> indices;
};

// Left out where all pairs hold: for every axis a list of bits, one per value, that says whether
// the value matches; axes that the entry does not mention match always.
struct Exclusion {
  std::vector<std::vector<bool>> matches;  // [axis][value]
  std::vector<bool> mentions;              // [axis]
};

struct Matrix {
  bool pairwise = false;
  std::vector<Axis> axes;
  std::vector<Exclusion> exclusions;
};

// One value index per axis.
using Choice = std::vector<size_t>;

// Reads "matrix" and "exclude" of a document that matches the schema. False after errors.
bool read_matrix(const nlohmann::ordered_json& document, const SetEffects& effects,
                 const Places& places, Matrix* matrix, InputErrors* errors);

// All combinations in a fixed order: the last axis changes fastest. Pairwise: for each combination
// of the axes in `each`, enough that every pair of values of two other axes that is possible at
// all occurs. The same seed gives the same choices on every machine. Empty: all are excluded. More
// than kMostCombinations: false.
bool choose_combinations(const Matrix& matrix, uint64_t seed, std::vector<Choice>* choices);

}  // namespace lockstep
