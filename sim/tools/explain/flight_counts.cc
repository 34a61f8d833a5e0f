#include "sim/tools/explain/flight_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sim/tools/explain/flight_mismatch.h"

namespace lockstep {
namespace {

// Who gets nothing in an all-to-all may end before others enter.
bool waits_for_all(const std::string& operation) {
  return is_symmetric(operation) && !operation.starts_with("all_to_all");
}

// The last that a rank completed, of those in which all wait for all.
int64_t last_completed(const GroupRecord& group) {
  int64_t last = -1;
  for (const auto& [sequence, arrivals] : group.collectives)
    for (const FlightArrival& arrival : arrivals)
      if (arrival.entry->done && waits_for_all(arrival.entry->operation)) last = sequence;
  return last;
}

}  // namespace

RankSet of_other_moments(const std::map<std::string, GroupRecord>& groups) {
  RankSet others;
  for (const auto& [name, group] : groups) {
    if (group.gloo || group.from_log || group.point_to_point) continue;
    const int64_t completed = last_completed(group);
    for (const auto& [rank, status] : group.status)
      if (status.enqueued >= 0 && status.enqueued < completed) others.insert(rank);
  }
  return others;
}

bool nobody_else_waits(const RankSet& waiting, const RankSet& absent, const GroupRecord& group,
                       const std::map<std::string, GroupRecord>& groups) {
  const auto within = [&](const RankSet& ranks) {
    return std::includes(group.members.begin(), group.members.end(), ranks.begin(), ranks.end());
  };
  return within(waiting) && std::any_of(groups.begin(), groups.end(), [&](const auto& one) {
           const auto& status = one.second.status;
           return !within(one.second.members) &&
                  std::any_of(absent.begin(), absent.end(), [&](int64_t rank) {
                    const auto of_rank = status.find(rank);
                    return of_rank != status.end() && of_rank->second.completed > 0;
                  });
         });
}

std::string whether_too_many(const RankSet& few, const RankSet& many, const std::string& name,
                             const GroupRecord& group) {
  const bool half = 2 * many.size() == group.members.size();
  return fmt::format(
      "whether {} made a call too many, or {} stopped early: {} of group {} ({}) did "
      "not enter it{}",
      rank_list(few), rank_list(many), half ? "half" : "most", name, group.description,
      half ? ", and no rank outside it waits" : "");
}

std::string whether_taken_later(const RankSet& few, int64_t sequence, const std::string& name,
                                const GroupRecord& group) {
  return fmt::format(
      "whether the dump of {} was taken later: it alone completed collective {} of group {} ({})",
      rank_list(few), sequence, name, group.description);
}

std::string whether_same_moment(const RankSet& others) {
  return fmt::format(
      "whether the dump of {} is from the same moment and run as the others, which completed "
      "collectives that it had not entered",
      rank_list(others));
}

int64_t first_call_ns(const std::vector<FlightArrival>& arrivals, const RankSet& ranks) {
  auto first_ns = std::numeric_limits<int64_t>::max();
  for (const FlightArrival& arrival : arrivals)
    if (ranks.contains(arrival.rank)) first_ns = std::min(first_ns, arrival.entry->created_ns);
  return first_ns;
}

bool is_missed(const GroupRecord& group, int64_t sequence) {
  return std::any_of(group.status.begin(), group.status.end(),
                     [&](const auto& one) { return one.second.enqueued < sequence; });
}

std::string what_is_not_known(const CountsApart& apart) {
  return fmt::format(
      "what {} did not call: the dumps hold only counts of group {} ({}), and others had called {} "
      "collectives",
      rank_list(apart.behind), apart.group, apart.description, apart.most);
}

std::vector<CountsApart> counts_apart(const std::map<std::string, GroupRecord>& groups) {
  std::vector<CountsApart> found;
  for (const auto& [name, group] : groups) {
    if (group.gloo || group.point_to_point || !group.collectives.empty()) continue;
    CountsApart apart{name, group.description, {}, -1};
    for (const auto& [rank, status] : group.status)
      apart.most = std::max(apart.most, status.enqueued);
    for (const auto& [rank, status] : group.status)
      if (status.enqueued < apart.most) apart.behind.insert(rank);
    if (!apart.behind.empty()) found.push_back(std::move(apart));
  }
  return found;
}

}  // namespace lockstep
