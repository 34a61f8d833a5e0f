#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/tools/explain/flight_groups.h"

namespace lockstep {

// Ranks whose dumps were taken at another moment than those of others, or left by another run: of a
// collective in which no rank can go ahead, somebody completed what they had not entered.
RankSet of_other_moments(const std::map<std::string, GroupRecord>& groups);
std::string whether_same_moment(const RankSet& others);

// Does nobody wait outside of `group`, with whom `absent`, ranks of the group, were in a collective
// before?
bool nobody_else_waits(const RankSet& waiting, const RankSet& absent, const GroupRecord& group,
                       const std::map<std::string, GroupRecord>& groups);
// Whether `few` were wrong to come, or `many` to stop.
std::string whether_too_many(const RankSet& few, const RankSet& many, const std::string& name,
                             const GroupRecord& group);
// Whether those took their dumps later who alone completed a collective.
std::string whether_taken_later(const RankSet& few, int64_t sequence, const std::string& name,
                                const GroupRecord& group);

// When the first of these ranks called it.
int64_t first_call_ns(const std::vector<FlightArrival>& arrivals, const RankSet& ranks);

// Has somebody not entered that collective?
bool is_missed(const GroupRecord& group, int64_t sequence);

// Of a group whose dumps hold counts and no calls, as of a recorder that is asked for no more: who
// had called fewer collectives than others.
struct CountsApart {
  std::string group, description;
  RankSet behind;
  int64_t most = -1;
};
std::string what_is_not_known(const CountsApart& apart);
std::vector<CountsApart> counts_apart(const std::map<std::string, GroupRecord>& groups);

}  // namespace lockstep
