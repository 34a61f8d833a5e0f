#pragma once

#include <string>

#include "scenarios/base/options.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// How the weights of two and more dimensions lie in memory (model.memory_format); their values stay
// what they are.
// contiguous: the last dimension is the innermost.
// channels_last: of images (four dimensions) the channels are.
// transposed: the last dimension but one is.
// sliced: each is a slice of a tensor with twice its columns: there are gaps.
std::string memory_format_of(const Options& model);  // contiguous where a model has no such option

void lay_out_weights(const std::string& format, const Model& model);

}  // namespace lockstep
