#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "scenarios/base/options.h"

namespace lockstep {

// A part of a model that activation checkpointing computes twice. It must outlive the last backward
// and stay where it is.
struct Segment {
  std::function<at::Tensor(const at::Tensor&)> run;
  std::vector<at::Tensor> parameters;  // all that run() uses
};

// A model's; none where it knows no checkpointing.
std::string checkpointing_of(const Options& model);

// run(input), of which nothing is kept but the input: backward computes it again.
// how: reentrant: and calls backward on it, which leaves the parameters' gradients; the graph of
//      the result does not lead to the parameters, and where `input` needs no gradient they get
//      none. As torch.utils.checkpoint with use_reentrant.
//      non_reentrant: the parameters are inputs of the node, and get their gradients from it.
//      none: run(input).
at::Tensor checkpointed(const std::string& how, const Segment& segment, const at::Tensor& input);

}  // namespace lockstep
