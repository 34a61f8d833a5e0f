#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/collective/spec.h"

namespace lockstep {

// What one rank leaves of `lockstep collective`: lines of JSON that it appends as it goes, so that
// what was measured before a failure stays.

// One communicator at one size. Times of the iterations that count, CLOCK_MONOTONIC.
struct RankRow {
  int64_t row = 0;  // place of the size x number of communicators + place of the communicator
  std::vector<int64_t> begin_ns, end_ns;
  int64_t wrong = 0;    // elements of this rank, over all iterations, warm-up included
  int64_t results = 0;  // that were compared
};

struct RankFile {
  std::vector<RankRow> rows;
  // Wrong elements where one element of one rank was damaged on purpose; nothing: not come so far.
  std::optional<int64_t> control_wrong;
  std::string error;  // that ended the rank: "gloo:ring, 1,024 bytes: all_reduce of ..."
};

std::string rank_file_path(const std::string& run_dir, int64_t rank);  // rank-0.collective

// Throw std::system_error.
void append_row(const std::string& path, const RankRow& row);
void append_control(const std::string& path, int64_t wrong);
void append_error(const std::string& path, const std::string& error);

// A last line that is unfinished does not count; empty where there is no file.
RankFile read_rank_file(const std::string& path);

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
