#include "sim/tools/explain/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr int64_t kLeastCalls = 6;  // one a step, of as many steps as a straggler must be late in

// The rank that a send or receive is with; -1: not told.
int64_t peer_of(const FlightEntry& entry, const FlightDump& dump) {
  const auto group = dump.groups.find(entry.group);
  if (entry.peer < 0 || group == dump.groups.end() || !group->second.ranks) return -1;
  const std::vector<int64_t>& ranks = *group->second.ranks;
  const auto place = static_cast<size_t>(entry.peer);
  return place < ranks.size() ? ranks[place] : -1;
}

bool exchanges_within(const FlightDump& dump, const RankSet& ranks) {
  return std::any_of(dump.entries.begin(), dump.entries.end(), [&](const FlightEntry& entry) {
    if (!entry.point_to_point) return false;
    const int64_t peer = peer_of(entry, dump);
    return peer < 0 || (peer != dump.rank && ranks.contains(peer));
  });
}

// "PIPELINE_MODEL_PARALLEL_GROUP" of Megatron, "mesh_pp" of a device mesh.
bool names_pipeline(std::string_view description) {
  std::string word;
  for (size_t at = 0; at <= description.size(); ++at) {
    const auto c = at < description.size() ? static_cast<unsigned char>(description[at]) : '\0';
    if (std::isalpha(c) != 0) {
      word += static_cast<char>(std::tolower(c));
      continue;
    }
    if (word == "pp" || word == "pipe" || word.starts_with("pipeline")) return true;
    word.clear();
  }
  return false;
}

bool shares_two(const std::vector<int64_t>& some, const RankSet& ranks) {
  return std::count_if(some.begin(), some.end(),
                       [&](int64_t rank) { return ranks.contains(rank); }) > 1;
}

// Of a late rank: a group of it and others that is a pipeline's by its name, or whose calls are in
// no dump though it has some.
std::string told_by_groups(const FlightDump& dump, const RankSet& ranks) {
  std::set<std::string_view> recorded;
  for (const FlightEntry& entry : dump.entries) recorded.insert(entry.group);
  for (const auto& [name, group] : dump.groups) {
    if (!group.ranks || !shares_two(*group.ranks, ranks)) continue;
    if (names_pipeline(group.description))
      return fmt::format("group {} ({}) is a pipeline's by its name", name, group.description);
    const auto status = dump.status.find(name);
    if (!recorded.contains(name) && status != dump.status.end() &&
        status->second.enqueued >= kLeastCalls)
      return fmt::format("rank {} made {} calls of group {} ({}), none of which is in its dump",
                         dump.rank, status->second.enqueued, name, group.description);
  }
  return "";
}

// Late ranks that are together in a group, to which none of them was late: a stage is so.
std::string told_by_company(const RankSet& late, const std::vector<FlightDump>& dumps) {
  std::map<std::string_view, RankSet> callers;
  for (const FlightDump& dump : dumps)
    for (const FlightEntry& entry : dump.entries)
      if (!dump.from_log) callers[entry.group].insert(dump.rank);
  RankSet together;
  std::string_view first;
  for (const auto& [name, ranks] : callers) {
    if (ranks.size() < 2 || !std::includes(late.begin(), late.end(), ranks.begin(), ranks.end()))
      continue;
    if (first.empty()) first = name;
    together.insert(ranks.begin(), ranks.end());
  }
  if (together.empty() || together != late) return "";
  return fmt::format("they are late together, like ranks of one stage, and make up group {}",
                     first);
}

// While the rank called what its dump holds.
int64_t transfers_meanwhile(const FlightDump& dump) {
  std::map<std::string_view, std::pair<int64_t, int64_t>> counted;  // by group: first and last
  for (const FlightEntry& entry : dump.entries) {
    const bool begins = entry.record == 0 || entry.sequence == 1;
    const int64_t before = begins ? 0 : entry.unrecorded;
    counted.try_emplace(entry.group, before, entry.unrecorded).first->second.second =
        entry.unrecorded;
  }
  int64_t all = 0;
  for (const auto& [group, count] : counted) all += count.second - count.first;
  return all;
}

}  // namespace

int64_t unrecorded_transfers(const FlightDump& dump) {
  std::map<std::string_view, int64_t> counted;
  for (const FlightEntry& entry : dump.entries) counted[entry.group] = entry.unrecorded;
  int64_t all = 0;
  for (const auto& [group, count] : counted) all += count;
  return all;
}

std::string told_stages(const RankSet& ranks, const RankSet& late,
                        const std::vector<FlightDump>& dumps) {
  for (const FlightDump& dump : dumps) {
    if (dump.from_log || !ranks.contains(dump.rank)) continue;
    if (exchanges_within(dump, ranks)) return "its ranks send each other their results";
    if (const int64_t count = transfers_meanwhile(dump); count >= kLeastCalls)
      return fmt::format(
          "rank {} made {} sends and receives, which Gloo counts but no dump contains", dump.rank,
          count);
    if (!late.contains(dump.rank)) continue;
    if (std::string told = told_by_groups(dump, ranks); !told.empty()) return told;
  }
  return told_by_company(late, dumps);
}

}  // namespace lockstep
