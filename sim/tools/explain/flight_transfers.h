#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/tools/explain/flight_groups.h"

namespace lockstep {

// The side of a send or receive that a rank has not called, as far as is known.
struct MissingSide {
  std::string group;
  int64_t sequence;       // of the other side
  std::string operation;  // the other side's
  RankSet waiting;        // who called the other side
  bool counted = false;   // the dumps of both hold all calls, and the rank's are fewer

  // Else what left the rank may have got lost on its way to one other; to two it does not.
  bool is_sure() const { return counted || waiting.size() > 1; }
};

struct OpenTransfers {
  // In a send or receive, before which nothing keeps it, and whose peer has not called its side or
  // is kept from it.
  RankSet waiting;
  std::map<int64_t, MissingSide> missing;  // by that peer, if no call of its own is open; its first
  // By the rank that called its side, before which nothing keeps it either, and whose GPU never
  // began it, while its peer's did.
  std::map<int64_t, MissingSide> unstarted;
};

// Of sends and receives whose entries name both sides (NCCL's "recv 1<-0"), in groups of which the
// ranks are known. Who waits in what both sides called, and nothing keeps, is not among `waiting`.
OpenTransfers open_transfers(const std::vector<FlightDump>& dumps,
                             const std::map<std::string, GroupRecord>& groups);

// What is missing where that is not sure.
std::string whether_missing(int64_t rank, const MissingSide& side);

}  // namespace lockstep
