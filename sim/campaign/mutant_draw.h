#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

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
