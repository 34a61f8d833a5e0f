#pragma once

#include "sim/cli/compare.h"
#include "sim/launch/recording.h"
#include "sim/report/compare_document.h"

namespace lockstep {

// The tensors that rank 0 of two recordings kept, step by step and at the end, within the options'
// tolerance. Ranks within a recording are compared by their hashes, bit for bit: they have to
// agree.
Expected<CompareDocument> compare_recorded_tensors(const CompareOptions& options,
                                                   const RecordedHashes& a,
                                                   const RecordedHashes& b);

}  // namespace lockstep
