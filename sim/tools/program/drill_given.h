#pragma once

#include <optional>
#include <vector>

#include "sim/tools/program/drill_align.h"

namespace lockstep {

// What the calls of the ranks that belong together were given, where their outputs do not fit.
struct GivenCalls {
  std::vector<const DrillCall*> ranks;
  const DrillCall* one = nullptr;
};

struct DifferingWhole {
  DrillPlace place;
  bool kept = false;    // since before the training
  bool shared = false;  // by all ranks
};

// Where something without a gradient comes from that was made of a batch as a whole, and is neither
// alike on all ranks nor theirs together that of one device. Its function is empty where nothing
// was seen to make it so: what a rank keeps for itself.
std::optional<DifferingWhole> differing_whole(const GivenCalls& calls);

// Numbers of Python, of one place: of each rank, and of one device.
struct GivenNumbers {
  std::vector<double> ranks;
  double one = 0;
  bool shared = false;  // all ranks have the same
};

// The first that is not alike on all ranks; else the first that is not that of one device.
std::optional<GivenNumbers> differing_numbers(const GivenCalls& calls);

// Of a list of whole numbers that all ranks share: those of one device are the same with an offset,
// rank times their number, for each rank.
bool lack_offset(const GivenCalls& calls);

// By the name of a function of torch.
bool is_product(const std::string& function);
bool is_addition(const std::string& function);  // or a difference

// By what one number, which fits, was multiplied; or a sum of elements, which is then their mean.
struct ScalarFactors {
  std::vector<double> ranks;
  double one = 1;
};

// `made`: the calls that made it. Nothing unless each is a product, a quotient or a mean.
std::optional<ScalarFactors> scalar_factors(const GivenCalls& calls, const GivenCalls& made);

}  // namespace lockstep
