#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Whether `name` is the plain name of a file that this rank leaves in its run directory: records,
// log, evidence and stack (protocol.h), or a dump of a state that differed, as
// rank-0.replica.step-3.run, .golden and .index.txt.
bool is_rank_file(const std::string& name, int64_t rank);

}  // namespace lockstep
