#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/record/evidence.h"
#include "sim/record/rank_groups.h"

namespace lockstep {

// What the agent (python/lockstep/agent/run) leaves of a rank beside its records, in small files.
// One that is not there says nothing; of one that is there, every type and range is checked.

// What the agent of one rank knows beside its records.
struct ProgramRankFacts {
  bool met = false;         // it came out of init_process_group
  std::string torch, tap;   // "2.15.0"; "hooks", "functions"
  int64_t world = 0;        // as its group says
  int64_t timeout_ms = -1;  // of that group, as it was set
  std::string error, line;  // "ValueError: bad"; the program's own line "train.py:31"
  std::vector<RankGroup> groups;
  std::vector<std::string> stack;   // of a hung rank, innermost first: "train.py:31 step()"
  std::vector<std::string> places;  // of these the innermost, and those that are no library's
};

// rank-R.facts.json, groups.json, error.json and stack. What was wrong with the first that could
// not be read; those after it are left alone then.
InputErrors read_rank_facts(const std::string& folder, int64_t rank, ProgramRankFacts* found,
                            RankError* error);

// The files of its frames, innermost first, as it was last asked for its stack.
std::vector<std::string> files_of_stack(const std::string& folder, int64_t rank);

// What a rank's error means, by the sentences of Gloo and c10d; `waits`: it was in a collective, or
// had not met the others yet. Anything that is not theirs is the program's own exception.
ErrorKind error_kind_of(const std::string& text, bool waits);

// Of a program that starts its ranks itself: rank-R.process.json. Nothing while it is not there.
Expected<std::optional<pid_t>> read_rank_process(const std::string& folder, int64_t rank);

// How a child of it ended, as it told in children.jsonl.
struct ChildEnd {
  int exit_code = -1, signal = 0;
  int sent = 0;  // the signal by which the program ended it; 0: it did not
  bool ended = false;
};
Expected<ChildEnd> read_child_end(const std::string& folder, pid_t pid);

}  // namespace lockstep
