#pragma once

#include <cstdint>

#include "scenarios/base/options.h"

namespace lockstep {

// Threads that prepare a rank's batches (data.workers); 0: none.
inline int64_t loader_workers(const Part& data) {
  return data.options.has("workers") ? data.options.integer("workers") : 0;
}

// In how many steps' distance losses are reported (loss.report_every); 0: never.
inline int64_t report_every(const Part& loss) {
  return loss.options.has("report_every") ? loss.options.integer("report_every") : 0;
}

// Ranks of one node (split.ranks_per_node); 0: not given.
inline int64_t ranks_per_node(const Part& split) {
  return split.options.has("ranks_per_node") ? split.options.integer("ranks_per_node") : 0;
}

// Is the model's last layer registered first (model.register)?
inline bool registers_backwards(const Options& model) {
  return model.has("register") && model.text("register") == "backwards";
}

// The part of activations that a model's dropout makes zero (model.dropout); 0: none.
inline double dropout_of(const Options& model) {
  return model.has("dropout") ? model.number("dropout") : 0;
}

}  // namespace lockstep
