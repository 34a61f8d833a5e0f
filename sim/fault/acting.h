#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "scenarios/scenario.h"
#include "sim/record/recorder.h"

namespace lockstep {

// The first mutant of this kind that acts on this rank in the recorder's step, and on this bucket
// where there is one; or null. One that acts leaves a receipt.
const MutantSpec* acting(const std::vector<MutantSpec>& mutants, std::string_view kind,
                         int64_t rank, Recorder& recorder,
                         std::optional<int64_t> bucket = std::nullopt);

}  // namespace lockstep
