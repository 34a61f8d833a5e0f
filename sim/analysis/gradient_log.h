#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"

namespace lockstep {

// What `lockstep run --gradients FOLDER -- COMMAND` leaves of a training
// (python/lockstep/agent/run/gradients.py): of each rank an index of JSON lines and a file of
// numbers. Read as a stranger's bytes are: types, ranges and sizes are checked.

enum class GradientType { float32, float64 };

// Elements [first, first + elements) of a tensor, which begin at byte `at` of a rank's numbers.
struct GradientPart {
  int64_t rank = 0, first = 0, elements = 0, at = 0;
};

struct LoggedGradient {
  GradientType type = GradientType::float32;
  int64_t elements = 0;             // of the whole tensor
  int64_t backwards = 1;            // of a local one: how many were accumulated
  std::vector<GradientPart> parts;  // of a sharded one several, ascending; they cover the tensor
};

struct GradientStep {
  bool whole = false;  // all ranks recorded all of it, the optimizer's update included
  std::vector<std::map<std::string, LoggedGradient>> local;  // by rank: as its backward made it
  std::map<std::string, LoggedGradient> reduced;             // over ranks, before any clipping
  std::map<std::string, LoggedGradient> given;  // to the optimizer, where they were clipped
  std::map<std::string, uint64_t> updated;      // checksums of parameters afterwards
  std::vector<std::map<std::string, uint64_t>> replicas;  // the same by rank, of those not sharded
  std::vector<double> rates;                              // of rank 0's parameter groups
};

struct GradientLog {
  std::string folder, id, follows;  // follows: the id of another log; empty: none
  std::string torch;                // its version
  int64_t world = 0;
  std::vector<std::string> names;         // of parameters, in the order of rank 0's optimizers
  std::map<std::string, uint64_t> start;  // checksums of parameters before the first step
  std::vector<GradientStep> steps;        // that were recorded, in part maybe
  bool ended = false;                     // all ranks wrote their end
  std::string stopped;               // why a rank recorded no more; empty: it recorded to its end
  std::vector<ForeignFile> numbers;  // by rank
};

bool is_gradient_log(const std::string& folder);

// Bad input: no such folder, another version, what the agent cannot have written.
Expected<GradientLog> read_gradient_log(const std::string& folder);

// Elements [first, first + count) of a tensor. `T` is float or double, as its type says. Empty
// where its file is shorter than it was when the log was read.
template <class T>
std::vector<T> read_gradient(const GradientLog& log, const LoggedGradient& gradient, int64_t first,
                             int64_t count);

extern template std::vector<float> read_gradient<float>(const GradientLog&, const LoggedGradient&,
                                                        int64_t, int64_t);
extern template std::vector<double> read_gradient<double>(const GradientLog&, const LoggedGradient&,
                                                          int64_t, int64_t);

}  // namespace lockstep
