#pragma once

#include <string>

#include "sim/record/evidence.h"
#include "sim/worker/diagnose.h"

namespace lockstep {

// Writes `evidence` to `path` (temporary file, then rename); nothing where path is empty. A failure
// goes to the log: the records still tell that there was a mismatch.
void write_evidence(const std::string& path, const Evidence& evidence);

// Writes the two states of a mismatch as raw bytes, PREFIX.LANE.step-N.run and .golden, with an
// index of names, dtypes and offsets beside them (.index.txt). Nothing where prefix is empty.
void dump_states(const std::string& prefix, const MismatchContext& context);

}  // namespace lockstep
