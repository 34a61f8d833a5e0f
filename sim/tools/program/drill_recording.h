#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/tools/program/recording.h"

namespace lockstep {

// What the agent (python/lockstep/agent/drill.py) left of one step of one rank, operator by
// operator: facts, no judgement.

// Two projections of each row on fixed directions: of the first dimension (of a scalar: of
// itself), and of the second where that may be the one of the samples. Absent: too large, or not
// finite.
using RowPrints = std::optional<std::vector<double>>;

// Of all elements, whatever their order: the sum, and the norms of powers 1, 2 and 4.
struct ElementNorms {
  double sum = 0, one = 0, two = 0, four = 0;
};

struct DrillTensor {
  std::vector<int64_t> shape;
  std::optional<ElementNorms> norms;  // absent: not finite
  RowPrints rows, columns;
  double norm() const { return norms ? norms->two : 0; }
};

// What a call was given that has no gradient.
struct DrillWhole {
  std::string function, line;  // that made it of a batch as a whole; empty: nothing did
  bool kept = false;           // of batches of a loader, before the training
  DrillTensor value;
};

// Of a function of torch, or of an autograd function.
struct DrillCall {
  std::string name;            // "torch.nn.functional.batch_norm"
  std::string module, kind;    // in whose forward it is: "1", "BatchNorm1d"; kind "": in none
  std::string line;            // of the user's script
  int64_t samples = 0;         // of the step so far, those of the forward it belongs to included
  std::vector<size_t> inputs;  // calls that made what it was given
  std::vector<DrillTensor> outputs;
  std::vector<DrillWhole> wholes;
  std::vector<double> numbers;       // of Python, fractions alone
  std::vector<DrillTensor> indices;  // lists of whole numbers, without prints
};

// What backward brought to an output, in its order.
struct DrillGradient {
  size_t call = 0, output = 0;
  DrillTensor value;
};

struct DrillParameter {
  std::string name;
  Sketch values;    // as the first operator found them
  Sketch gradient;  // before any reduction: the sum over the backwards of the step
  // As a later operator found them, where they were written to in between, and which call that was.
  Sketch later;
  size_t later_call = 0;
  std::vector<size_t> users;  // calls; empty: not known
};

struct DrillRank {
  std::vector<DrillCall> calls;
  std::vector<DrillGradient> gradients;
  std::vector<DrillParameter> parameters;
  std::string why;  // it left no more
  bool ended = false;
};

// Nothing: it has none of that name.
const DrillParameter* parameter_of(const DrillRank& rank, const std::string& name);

// The bytes are a stranger's: bounded, every type checked; calls and outputs that others refer to
// are there.
Expected<DrillRank> read_drill_rank(const std::string& path);

}  // namespace lockstep
