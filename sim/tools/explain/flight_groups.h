#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"

namespace lockstep {

// What all dumps of a job together hold of each group of ranks. Entries point into the dumps.

struct FlightArrival {
  int64_t rank;
  const FlightEntry* entry;
};

struct GroupRecord {
  std::string description;
  RankSet members;                                            // as far as the dumps say
  RankList ranks;                                             // null where they do not
  std::map<int64_t, FlightStatus> status;                     // by rank, where it is known
  std::map<int64_t, std::vector<FlightArrival>> collectives;  // by sequence number
  bool gloo = false;
  bool from_log = false;  // of some ranks only a log tells of it
  // Sends and receives are in it: what NCCL's status counts are these and collectives, mixed.
  bool point_to_point = false;
};

// Holds all that its rank called since it began.
bool is_whole(const FlightDump& dump);

// By name. `ambiguous`: those of which dumps disagree on who is in them.
std::map<std::string, GroupRecord> flight_groups(const std::vector<FlightDump>& dumps,
                                                 std::set<std::string>* ambiguous);

// Members of groups, and ranks whose numbers are missing, since Gloo's dumps do not say who is in
// one.
RankSet ranks_without_dump(const std::vector<FlightDump>& dumps,
                           const std::map<std::string, GroupRecord>& groups);

}  // namespace lockstep
