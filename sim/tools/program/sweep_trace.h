#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// When the gradients and sums of one rank's steps were there, in a run of a program that was traced
// (python/lockstep/agent/traced.py). Times are CLOCK_MONOTONIC's, which the ranks of a host share.

struct TracedBucket {
  int64_t begin_ns = 0, end_ns = 0, bytes = 0;
};

struct TracedStep {
  int64_t forward_ns = 0, backward_ns = 0, end_ns = 0;  // begin, begin, and end of the optimizer
  int64_t backwards = 0;
  std::vector<int64_t> ready_ns;  // by parameter; 0: it had no gradient
  std::vector<TracedBucket> buckets;
};

struct ProgramTrace {
  int64_t models = 0;               // in DistributedDataParallel; the rest is of the first one
  std::vector<int64_t> elements;    // by parameter, in the order of registration
  std::vector<std::string> dtypes;  // by parameter: "float32"
  std::vector<int64_t> order;       // in which the first backward came to them
  bool rebuilds = false;            // buckets are laid out anew in this order
  int64_t first_bucket_bytes = 0;   // the cap of the first bucket
  bool first_follows_cap = false;   // it is that of all, wherever a cap is given
  std::vector<TracedStep> steps;    // after the warm-up
};

// A list; a number, too, can be iterated over. Throws nlohmann::json::exception.
std::vector<nlohmann::ordered_json> list_at(const nlohmann::ordered_json& json, const char* key);

// Of what the agent wrote. Throws nlohmann::json::exception; a stranger's numbers are checked by
// why_unfit() alone.
ProgramTrace program_trace_of(const nlohmann::ordered_json& json);

// The dtype of a scenario whose elements have as many bytes; empty: there is none.
std::string simulated_dtype(const std::string& dtype);

// Why ranks with these traces cannot be simulated; empty: they can. Several models, passes without
// a sum, parameters of several dtypes or without a gradient, buckets that are never laid out anew,
// ranks that differ, times that are none.
std::string why_unfit(const std::vector<const ProgramTrace*>& ranks);

}  // namespace lockstep
