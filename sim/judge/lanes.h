#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// Each lane that the scenario names, decided from records alone: a lane passes only if every rank
// compared something, reached the last step, differed nowhere and the lane's control was detected.
std::vector<LaneResult> decide_lanes(const RunOutcome& outcome, const std::vector<RankView>& ranks);

// Where the chained hashes of the ranks part: the first step and kind, and the ranks that differ
// there from the first one that has a hash. Nothing if all kept hashes agree.
struct ReplicaSplit {
  int64_t step = 0;
  int64_t reference = 0;  // that first rank
  StateKind state_kind{};
  std::vector<int64_t> ranks;
};
std::optional<ReplicaSplit> find_replica_split(const std::vector<RankView>& ranks);

// First step whose statistic is beyond the lane's threshold (or not a number), of the golden
// processes' records. Of such lanes.
std::optional<int64_t> statistic_beyond(const RunOutcome& outcome, Lane lane);

// "0 2 3"
std::string list_of(const std::vector<int64_t>& ranks);
std::string ranks_in_words(const std::vector<int64_t>& ranks);  // "rank 2", "ranks 0 2"

}  // namespace lockstep
