#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/drill_align.h"
#include "sim/tools/program/drill_branch.h"
#include "sim/tools/program/drill_given.h"
#include "sim/tools/program/drill_recording.h"
#include "sim/tools/program/rank_weights.h"
#include "sim/tools/program/recording.h"

namespace lockstep {

// Where in a wrong step several ranks first leave one device. A pointer for whoever looks for the
// mistake; it changes no verdict.

enum class DrillStage {
  not_drilled,     // `words` says why
  nothing,         // all that was recorded fits
  start,           // the values of a parameter, as the first operator finds them
  calls,           // ranks call one thing where one device calls another
  forward,         // the output of an operator
  backward,        // what an operator passes back
  local_gradient,  // of a parameter, before any reduction
  reduction,       // of a parameter, as optimizer.step() finds it
  update,          // the parameter after it
};
const char* name_of(DrillStage stage);

// Of several that are added: one that is a sum over ranks, where the others are means.
struct DrillTerm {
  DrillPlace place;                      // what made it one
  bool was_mean = false;                 // by which a mean was multiplied
  std::optional<ScalarFactors> factors;  // if it was, by what; nothing: not known
};

struct DrillFinding {
  DrillStage stage = DrillStage::not_drilled;
  int64_t step = 0;
  size_t world = 0;                       // ranks
  DrillPlace place;                       // of forward and backward
  size_t call = 0;                        // of forward: which of one device's it is
  DrillPlace input;                       // of backward: what made the operator's input
  std::string parameter;                  // of start and of the last three
  std::vector<int64_t> ranks;             // of start: where the values are others
  std::optional<DrillParting> parting;    // of calls; else where they part before that
  std::vector<int64_t> shape, one_shape;  // of rank 0, of one device
  std::optional<double> distance, ratio;  // ratio: to what is due, if it is one number
  bool given_fits = false;  // of forward: all that it was given and that has a gradient, of which
                            // there is some
  bool of_means = false;    // and that is no row of a sample, but a sum or a mean of them
  std::optional<DifferingWhole> whole;  // of forward: what made of each rank's own batch as a whole
                                        // what it was given, which is another on one device
  std::optional<ScalarFactors> factors;  // of forward
  std::optional<DrillTerm> summed_term;  // of forward
  std::optional<DrillPlace> own_mean;    // of forward: what made a mean that meets rows of samples
  bool lacks_offset = false;             // of forward: indices that it is given
  bool takes_sums = false;               // of forward: the program divides no sum over ranks
  std::optional<GivenNumbers> numbers;   // of forward; of backward, if one operator had the input
  std::optional<DrillBranch> branch;
  size_t consumers = 0;      // backward: operators that were given this input
  bool in_function = false;  // backward: one of them is an autograd Function of the script;
                             // local_gradient: all that use the parameter are
  int64_t compared = 0, skipped = 0;  // outputs and gradients; skipped: too large, or not finite
  std::string words;                  // why it was not drilled
  std::vector<double>
      weights;  // of each rank's gradient, where the mean of one device is a weighted one
  std::optional<LimitedNorms> limited;  // by each rank, before any reduction
  std::optional<double> limited_each;   // the same of each parameter's: the limit
  std::string comm_hook;                // of reduction: that alone changed the gradient
  std::string changed_apart;  // of forward: a parameter that ranks changed before it in the step
};

// What the same runs left of each step, and of this one (from 1) operator by operator.
struct DrillFacts {
  std::vector<DrillRank> ranks;
  DrillRank one;
  std::vector<ProgramStep> steps;  // of each rank
  ProgramStep one_step;
  int64_t step = 0;
};

DrillFinding judge_drill(const DrillFacts& facts);
std::string sentence_of(const DrillFinding& finding);

}  // namespace lockstep
