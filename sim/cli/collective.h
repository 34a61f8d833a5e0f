#pragma once

#include <cstdint>
#include <string>

#include "sim/cli/ci_reports.h"

namespace lockstep {

// Measures one collective alone, without a training around it.
struct CollectiveOptions {
  std::string operation;
  std::string communicators = "gloo:ring,c10d,shm:ring";  // KIND[:ALGORITHM],...
  int64_t world_size = 2;
  std::string min_bytes = "8", max_bytes = "128M";  // as given
  int64_t factor = 2;
  std::string dtype = "float32";
  int64_t iterations = 20, warmup = 5, timeout_ms = 30'000;
  uint64_t seed = 1;
  std::string json, csv, out;
  CiOptions ci;
  std::string color = "auto";
  bool quiet = false;
};
int collective(const CollectiveOptions& options);

}  // namespace lockstep
