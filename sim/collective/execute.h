#pragma once

#include <functional>
#include <string>

#include "sim/collective/spec.h"

namespace lockstep {

struct CollectiveEnd {
  int signal = 0;       // that interrupted it
  std::string problem;  // what broke down, naming a rank; empty: every rank has finished
};

// Runs the ranks of `spec`, each a process, and returns when none of them is alive. `run_dir`
// exists; it gets collective.json and the ranks' files (rank_file.h), and keeps them. `progress` is
// called with the number of rows that are done. A rank that fails, or says nothing for longer than
// a collective may take and a minute, ends all. SIGINT and SIGTERM end them too. Throws
// std::system_error or std::runtime_error where the environment fails, with the sentence to print.
CollectiveEnd execute_collective(const CollectiveSpec& spec, const std::string& run_dir,
                                 const std::string& worker_program,
                                 const std::function<void(int64_t rows)>& progress);

// Keys that rank 0 sets in the run's store while it works: the number of rows that are done.
inline constexpr const char* kRowsDoneKey = "rows_done";

}  // namespace lockstep
