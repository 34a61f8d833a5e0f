#pragma once

#include <memory>
#include <string>

#include "scenarios/workloads/workload.h"

namespace lockstep {

// A shipped model whose layers take their time from a timer instead of arithmetic: parameters and
// buffers (initial weights, names, dtypes, order of registration) are the real ones, and every
// layer is a node of the autograd graph that yields the gradients of its parameters when the timer
// says so.
//
// Values are cheap and mean nothing, but lanes can judge them: a sample is one number, the mean of
// its inputs; each layer adds to it a little of the first element of each of its parameters; the
// output is that number times a fixed row. Backward hands every layer the same derivatives d, one
// for each sample, and the gradient of a parameter is a fixed pattern times the sum of d. So
// gradients depend on samples, weights and targets and add up over shards like real ones: one pass
// over each gradient, in memory that is kept between steps.
//
// Buffers stay as they are. Without a clock (run_by()) nothing waits: golden runs, double runs.
std::unique_ptr<Model> build_emulated(const Scenario& scenario, const std::string& dtype);

}  // namespace lockstep
