#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// Is it one of them?
bool contains(const std::vector<int64_t>& ranks, int64_t rank);

// docs/failures.md: from the records of all ranks, dead ones included, the first
// collective that not all ranks entered, who never did and what it was doing meanwhile, and who
// timed out. `then` and `ranks` as in failure_candidates(); `primary`: the primary rank, if it is
// one.
Explanation explain(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                    const std::vector<RankView>& then, std::optional<int64_t> primary);

// The primary rank's part of it; null where it kept nobody waiting.
const Explanation::Doing* doing_of(const Explanation& explanation, int64_t rank);

// "rank 2 never entered all_reduce 57 (bucket 2, 26.2 MB): in backward of step 12 for 31.2 s,
// stopped (state T)" for a rank that hangs.
std::string hang_text(const Explanation& explanation, int64_t rank);
// "; ranks 0 and 1 timed out after 30.0 s because of it", or empty.
std::string waited_text(const Explanation& explanation);
// "; it never entered all_reduce 57 (bucket 2, 26.2 MB)" of the primary rank, or empty.
std::string missing_text(const Explanation& explanation, int64_t rank);

// Who failed by its own cause, and who because of it (blame.h), explained
// (explain()). Nothing where every process ended well or the run was interrupted.
std::optional<Failure> find_failure(const RunOutcome& outcome, const std::vector<RankView>& ranks);

}  // namespace lockstep
