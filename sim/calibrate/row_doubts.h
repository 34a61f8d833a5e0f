#pragma once

#include "scenarios/base/error.h"
#include "sim/calibrate/published_table.h"

namespace lockstep {

// Rows that cannot both be right, beyond what published steps are reproducible to: warnings, each
// at the place of the later row. Two of the same configuration that differ; several ranks that are
// faster than one, each with as much to compute. A table is taken all the same: it is for whoever
// wrote it to say which row is wrong.
InputErrors doubts_of(const PublishedTable& table);

}  // namespace lockstep
