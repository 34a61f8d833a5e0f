#pragma once

#include <cstdint>
#include <string>

#include "sim/tools/program/run_result.h"

namespace lockstep {

// Of a run of several ranks that `verify` wanted to judge and that failed: what `run` says of it is
// the verdict where it is certain, and told as the reason of no verdict where it is not.

// Not certain: nobody is named and nothing shows that ranks disagree; a rank was silent, or others
// timed out on it, but may have been at work; it died after it had trained.
bool is_certain(const ProgramRun& run, const ProgramRunResult& result);

// An exception, an exit or a crash of one rank: does one device end by the same? Then it is no
// matter of ranks.
bool ends_by_itself(const ProgramRunResult& result);
bool ends_alike(const ProgramRunResult& ranks, const ProgramRunResult& one);

// Did any rank of one run end by an error of a type and at a line as one of the other? True where
// none is known.
bool share_an_error(const ProgramRunResult& one, const ProgramRunResult& other);

// Why the collective in which ranks were is none of the script's: the agent gathers shards at each
// update, and a rank came to none. Empty: it is the script's.
std::string in_own_gather(const std::string& folder, int64_t world);

}  // namespace lockstep
