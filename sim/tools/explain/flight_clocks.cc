#include "sim/tools/explain/flight_clocks.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "scenarios/base/median.h"
#include "sim/tools/explain/flight_lateness.h"

namespace lockstep {
namespace {

constexpr int64_t kApartNs = 1'000'000'000;
constexpr int64_t kAgreeNs = 500'000'000;
constexpr size_t kMostOfPair = 64;                  // the newest say enough
constexpr int64_t kMostApartNs = int64_t{1} << 56;  // years: no clock's doing

using Differences = std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;

// Of each pair of ranks, the first of a collective against each other one: that is enough to get
// from any of its ranks to any.
Differences differences_of(const std::map<std::string, GroupRecord>& groups) {
  Differences all;
  for (const auto& [name, group] : groups)
    for (auto at = group.collectives.rbegin(); at != group.collectives.rend(); ++at) {
      const FlightArrival& first = at->second.front();
      for (const FlightArrival& other : at->second) {
        if (other.rank == first.rank || first.entry->created_ns <= 0 ||
            other.entry->created_ns <= 0)
          continue;
        std::vector<int64_t>& pair = all[{first.rank, other.rank}];
        if (pair.size() < kMostOfPair)
          pair.push_back(other.entry->created_ns - first.entry->created_ns);
      }
    }
  return all;
}

// By rank, against the first one: as far as pairs lead.
std::map<int64_t, int64_t> against_one(const Differences& differences) {
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> neighbours;
  for (const auto& [pair, all] : differences)
    if (const auto ahead = usual_difference(all, kAgreeNs);
        ahead && std::abs(*ahead) <= kMostApartNs) {
      neighbours[pair.first].emplace_back(pair.second, *ahead);
      neighbours[pair.second].emplace_back(pair.first, -*ahead);
    }
  std::map<int64_t, int64_t> known;
  if (neighbours.empty()) return known;
  std::vector<int64_t> next = {neighbours.begin()->first};
  known[next.front()] = 0;
  while (!next.empty()) {
    const int64_t rank = next.back();
    next.pop_back();
    for (const auto& [other, ahead] : neighbours[rank])
      if (const int64_t sum = known[rank] + ahead;
          std::abs(sum) <= kMostApartNs && known.try_emplace(other, sum).second)
        next.push_back(other);
  }
  return known;
}

}  // namespace

std::map<int64_t, int64_t> clocks_ahead(const std::map<std::string, GroupRecord>& groups) {
  std::map<int64_t, int64_t> ahead = against_one(differences_of(groups));
  if (ahead.empty()) return ahead;
  std::vector<int64_t> all;
  for (const auto& [rank, ns] : ahead) all.push_back(ns);
  const int64_t middle_ns = upper_median_of(std::move(all));
  for (auto& [rank, ns] : ahead) ns -= middle_ns;
  std::erase_if(ahead, [](const auto& one) { return std::abs(one.second) <= kApartNs; });
  return ahead;
}

}  // namespace lockstep
