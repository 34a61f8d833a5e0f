#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/hash.h"

namespace lockstep {

// Numbers in the order in which they are asked for, from a seed alone.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(substream_seed(seed_, "campaign", next_++) %
                                static_cast<uint64_t>(limit));
  }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  // True once in `times`.
  bool once_in(int64_t times) { return below(times) == 0; }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

 private:
  const uint64_t seed_;
  uint64_t next_ = 0;
};

// Pieces of random trainings, as a scenario file holds them.

// Keys model, data and loss that fit together. `samples`: of the data set. A training of a few
// hundred weights, of which each has a gradient in every step.
nlohmann::ordered_json drawn_model(Draw* draw, int64_t samples);

// Any of LibTorch's, with numbers under which a small training stays finite.
nlohmann::ordered_json drawn_optimizer(Draw* draw);

// Caps under which a small model has from one bucket to one for each tensor.
void draw_caps(Draw* draw, nlohmann::ordered_json* reducer);

// local most of the time, since runs in threads are fast; else gloo, shm or c10d.
nlohmann::ordered_json drawn_communicator(Draw* draw);

// Scenarios with faults that nobody wrote: drawn from a seed, or all of an enumeration. Each is a
// document as a scenario file holds it, with what must come out of it under `expect`.

// One fault on one rank at one place of a small training: world size, reducer, communicator, model,
// optimizer, kind, rank, place and durations derive from the seed alone. Its name is "seed-SEED".
nlohmann::ordered_json drawn_case(uint64_t seed);

// One training with emulated compute in which a rank is late by a factor of at least 1.2 in one of
// the ways that `expect.straggler` knows, or nobody is. Its name is "straggler-SEED".
nlohmann::ordered_json straggler_case(uint64_t seed);

// Every kind of process fault that has no way back, on every rank, at every place of {rendezvous,
// construction, first step, mid bucket, last step}, at world sizes 2, 3 and 4.
std::vector<nlohmann::ordered_json> enumerated_cases();

// `count` of them, drawn by a seed; in their order.
std::vector<nlohmann::ordered_json> some_enumerated_cases(uint64_t seed, int64_t count);

// A random correct training, which nothing may be said against: `expect` is a pass. Model, data,
// optimizer, 1 to 9 ranks, reducer, communicator, caps, dtype, memory format, dropout, and which
// features of data-parallel training it uses, down to delays below the time-outs, derive from the
// seed alone. Its name is "clean-SEED". Left out is what is known not to be a correct run, or not
// one that arithmetic allows to be told from a wrong one:
// * defects of LibTorch's own: c10d with parameters that only micro-batches under no_sync used, or
//   that no rank left in a join uses; ProcessGroupGloo with bfloat16;
// * what no shard of a batch can be, before lanes float64 and rounding: BatchNorm with the
//   statistics of a shard, local steps;
// * Adam and its like where a gradient is zero but for rounding (attention's key bias, biases
//   before a norm): they make of rounding a step as long as any other.
nlohmann::ordered_json clean_case(uint64_t seed);

// Now and then makes of a clean training, last of all, one that reducer invariant does, that no
// lane but replica and replay can judge (PowerSGD, local steps, batch norm over shards), or whose
// ignored parameters are averaged by hand.
void vary_clean_case(Draw* draw, nlohmann::ordered_json* body);

// A random small training with one random defect (`mutants`), and under `expect` that the run must
// fail, with the step and, where the defect determines them, tensor and bucket of the first
// divergence. Model, optimizer, world size, reducer, caps, communicator, the kind of defect and its
// place derive from the seed alone. Its name is "mutant-SEED".
nlohmann::ordered_json mutant_case(uint64_t seed);

// The same training without the defect: what it must be equal to where the defect changed nothing.
nlohmann::ordered_json clean_twin(nlohmann::ordered_json document);

// Every kind that mutant_case() draws, in the order of the documentation.
const std::vector<std::string>& drawn_mutant_kinds();

}  // namespace lockstep
