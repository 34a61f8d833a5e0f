#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// What `lockstep collective` measures, with every choice made: one collective alone, by several
// communicators, at several sizes. It lies as collective.json in the run directory, where the ranks
// read it.

// A communicator as `--communicators` names it: KIND[:ALGORITHM], or, of hierarchical,
// hierarchical:ALGORITHM:RANKS_PER_HOST.
struct CollectiveGroup {
  std::string kind;            // gloo | c10d | shm | hierarchical
  std::string algorithm;       // ring where none was named
  int64_t ranks_per_host = 0;  // 0: of another kind
  std::string label() const;   // "gloo:bcube"; of a kind with one algorithm the kind alone
  std::string order() const;   // of addition, as golden/reduction_order.h names it
};

struct CollectiveSpec {
  std::string operation = "all_reduce";  // or another of collective_operations()
  std::vector<CollectiveGroup> groups;
  int64_t world_size = 2;
  // Ascending. Of the whole: what a rank adds or receives (broadcast, all_reduce, all_gather), or
  // what is scattered; a multiple of world_size where ranks have parts.
  std::vector<int64_t> elements;
  std::string dtype = "float32";  // or float64 | float16 | bfloat16
  int64_t iterations = 20, warmup = 5;
  int64_t timeout_ms = 30'000;  // of each collective
  uint64_t seed = 1;

  bool has_parts() const {
    return operation == "reduce_scatter" || operation == "all_gather" || exchanges();
  }
  bool exchanges() const { return operation == "all_to_all"; }
  bool adds() const { return operation == "reduce_scatter" || operation == "all_reduce"; }
  int64_t rows() const { return static_cast<int64_t>(groups.size() * elements.size()); }
};

std::vector<std::string> collective_operations();
int64_t element_bytes(const std::string& dtype);

// "gloo:ring,gloo:bcube,c10d,shm". Bad input: an unknown word (with a suggestion), a pair that
// cannot be, the same twice.
Expected<std::vector<CollectiveGroup>> parse_groups(const std::string& text);

// "8", "64K", "128M", "1G": bytes, the letters for 2^10, 2^20 and 2^30 as in nccl-tests.
Expected<int64_t> parse_bytes(const std::string& option, const std::string& text);

// Elements of bytes_min, bytes_min x factor, ... up to bytes_max, each rounded down to what can be:
// whole elements, as many for every rank where ranks have parts. Sizes of which nothing is left,
// and those that are the same after rounding, are left out.
std::vector<int64_t> sizes_of(const CollectiveSpec& spec, int64_t bytes_min, int64_t bytes_max,
                              int64_t factor);

// What nccl-tests multiplies algbw with to have busbw, which is comparable between operations and
// world sizes (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): all_reduce 2 (n - 1) / n,
// reduce_scatter, all_gather and all_to_all (n - 1) / n, broadcast 1.
double bus_factor(const std::string& operation, int64_t world_size);

// What all ranks together hold in memory at the largest size.
int64_t memory_bytes(const CollectiveSpec& spec);

std::string to_text(const CollectiveSpec& spec);
CollectiveSpec collective_spec_from(const std::string& json_text);  // throws std::exception
std::string collective_spec_path(const std::string& run_dir);       // collective.json

}  // namespace lockstep
