#pragma once

#include "scenarios/workloads/workload.h"

namespace lockstep {

// model->forward() of these samples in step `step`. Every forward of ranks and golden runs goes
// this way: layers that draw random numbers draw those of the batch's samples, and
// training.draws->any_undeclared() tells whether something else has drawn, from LibTorch's default
// generators of the CPU or of a GPU that holds parameters.
at::Tensor forward_of(const Training& training, int64_t step, const Batch& batch);

// Does that forward, three times over, give the same bits? What it draws from generators that
// nobody else knows (at::Generator, <random>, rand()) no golden run draws, and nothing else shows
// it. Buffers are as before afterwards; layers of the model that meet other ranks' samples, or take
// their time from a clock, do so no more.
bool repeats_itself(const Training& training, int64_t step, const Batch& batch);

}  // namespace lockstep
