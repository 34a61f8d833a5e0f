#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace lockstep {

// A random correct training, which nothing may be said against: `expect` is a pass. Model, data,
// optimizer, 1 to 9 ranks, reducer, communicator, caps, dtype, memory format, dropout, and which
// features of data-parallel training it uses, down to delays below the time-outs, derive from the
// seed alone. Its name is "clean-SEED". Left out is what is known not to be a correct run, or not
// one that arithmetic allows to be told from a wrong one:
// * defects of LibTorch's own: c10d with parameters that only micro-batches under no_sync used, or
//   that no rank left in a join uses; ProcessGroupGloo with bfloat16;
// * what no shard of a batch can be: BatchNorm with the statistics of a shard, local steps;
// * Adam and its like where a gradient is zero but for rounding (attention's key bias, biases
//   before a norm): they make of rounding a step as long as any other.
nlohmann::ordered_json clean_case(uint64_t seed);

}  // namespace lockstep
