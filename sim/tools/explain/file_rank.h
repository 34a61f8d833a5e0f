#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Whose a file is, by its name.

struct FileRank {
  std::string family;  // what files of one job's ranks have in common
  int64_t rank = -1;
  bool of_node = false;  // it counts one node's processes, as torchrun's folders; `family` is the
                         // node's
};

// "rank_3.log", "log.3", "stderr_3.txt", "3.err", torchrun's "attempt_0/3/stderr.log". Without a
// rank: numbers of nodes, hosts and pods, and what no rule reads.
FileRank rank_in_name(const std::string& path);

// A number is a rank where its word says so, or where files that differ in nothing else count from
// 0 without many gaps: not the number of a job, nor a date. Where folders hold files of one name,
// each is a node's. Files without a rank are left out.
std::map<std::string, FileRank> ranks_of_logs(const std::vector<std::string>& logs);

// "_dump_3", "nccl_trace_rank_3", "dump_r3.bin", "rank-3-of-8.pkl": the number at the end, or that
// behind "rank"; "rank_3/" of a folder where the name has none. None where these are two numbers.
std::optional<int64_t> rank_of_dump(const std::string& path);

// Of "slurm-4711.out" 4711, the number of the job; else -1.
int64_t slurm_job_of(const std::string& path);

}  // namespace lockstep
