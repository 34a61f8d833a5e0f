#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

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

}  // namespace lockstep
