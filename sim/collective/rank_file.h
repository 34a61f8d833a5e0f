#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace lockstep
