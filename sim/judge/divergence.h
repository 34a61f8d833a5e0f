#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// What is known about a first divergence when its cause is named.
struct CauseFacts {
  std::optional<StateKind> state_kind;  // of the first divergence
  int64_t step = 0;
  int64_t first_step = 1;  // that the run made
  int64_t world_size = 1;
  int64_t active_ranks = 1;      // with a batch in that step
  std::vector<int64_t> counts;   // what else a divisor may count: micro-batches, ranks of a host
  std::vector<int64_t> ran_out;  // of batches in the epoch before (join)
  std::vector<LaneResult> lanes;
  std::vector<int64_t> ranks;  // that saw it
  bool manifest_failed = false;
  // Why check checkpoint failed ("rank 1, after step 4: ..."), or empty; its step.
  std::string checkpoint_problem;
  int64_t checkpoint_step = 0;
  // The first samples that were not the plan's ("rank 1, step 4: row 0 ..."), or empty.
  std::string samples_problem;
  // The first shard of another size than the plan's ("rank 1, step 1: 32 samples ..."), or empty.
  std::string batch_problem;
  // Where gradients of earlier micro-batches were lost ("rank 1, step 2: grad() of ..."), or empty.
  std::string accumulation_problem;
  // What two ranks called until then that was not the same, or empty.
  std::string collective_problem;
  bool gradients_absent = false;  // check absent_gradients failed
  int64_t summed_replicas = 0;    // of one process that sums gradients: by nothing divided
  bool shares_optimizer = false;  // each rank updates its own part of the weights
  bool compresses = false;        // a comm hook leaves out a part of the gradients
  // Evidence of all ranks and lanes at that step: a guilty rank often knows more than the others.
  struct Witness {
    int64_t rank;
    const MismatchEvidence* evidence;
  };
  std::vector<Witness> witnesses;
  const MismatchEvidence* first = nullptr;  // the one that is reported; may be absent
};

struct Cause {
  std::string word;         // closed list: docs/verdicts.md
  std::string explanation;  // one line: why this one
};

// The most specific cause that the evidence supports; "unknown", with what is known, rather than a
// guess.
Cause name_cause(const CauseFacts& facts);

// The earliest difference over all failed lanes, in the order of steps, then gradient, buffer,
// parameter, optimizer_state; its values from the lane that says most (replay, exact, float64,
// replica), with its cause. Nothing where no lane failed.
std::optional<Divergence> first_divergence(const RunOutcome& outcome,
                                           const std::vector<RankView>& ranks,
                                           const std::vector<LaneResult>& lanes);

}  // namespace lockstep
