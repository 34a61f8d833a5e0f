#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "sim/tools/explain/attribution.h"

namespace lockstep {

// What `explain --scenario FILE` writes: a scenario in which each guilty rank, in a run of its own,
// fails as it did in the job, with the expectation that lockstep names it. A job of more ranks than
// one machine runs is there with fewer; `full` has its own size (up to what a scenario holds), its
// time-out and its lateness, for `simulate`.
struct Reproduction {
  std::optional<nlohmann::ordered_json> scenario;
  std::string why_not;           // where there is none
  int64_t ranks = 0;             // of the job
  bool simulated = true;         // virtual time has this fault
  bool ranks_by_option = false;  // more than a scenario of processes may have
};

Reproduction reproduce(const FlightFinding& found);

// For people: the commands that take the file, or why there is none.
std::string reproduction_text(const Reproduction& made, const std::string& path);

}  // namespace lockstep
