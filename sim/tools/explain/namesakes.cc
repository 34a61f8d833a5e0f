#include "sim/tools/explain/namesakes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr size_t kMostNamed = 8;  // ranks, in a name

// Groups of one name, by their ranks.
using Namesakes = std::map<std::vector<int64_t>, std::string>;

std::string name_of(const std::string& name, const std::vector<int64_t>& ranks) {
  const size_t named = std::min(ranks.size(), kMostNamed);
  return fmt::format("{} [{}{}]", name, fmt::join(ranks.begin(), ranks.begin() + named, ", "),
                     named < ranks.size() ? fmt::format(", {} ranks", ranks.size()) : "");
}

class Names {
 public:
  explicit Names(const std::vector<FlightDump>& dumps) {
    for (const FlightDump& dump : dumps)
      for (const auto& [name, group] : dump.groups)
        if (group.ranks) take(name, *group.ranks, dump.rank);
    std::erase_if(groups_, [&](const auto& named) {
      return named.second.size() < 2 || unclear_.contains(named.first) || overlap(named.second);
    });
    for (auto& [name, namesakes] : groups_)
      for (auto& [ranks, own] : namesakes) {
        own = name_of(name, ranks);
        for (const int64_t rank : ranks) own_names_[{name, rank}] = own;
      }
  }

  bool empty() const { return groups_.empty(); }
  // Of the one that the rank is in.
  const std::string& of(const std::string& name, int64_t rank) const {
    const auto found = own_names_.find({name, rank});
    return found == own_names_.end() ? name : found->second;
  }

 private:
  // A list without the rank that it comes from is another group's, or wrong.
  void take(const std::string& name, const std::vector<int64_t>& ranks, int64_t rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) unclear_.insert(name);
    groups_[name].try_emplace(ranks);
  }

  static bool overlap(const Namesakes& namesakes) {
    RankSet all;
    size_t ranks = 0;
    for (const auto& [members, name] : namesakes) {
      ranks += members.size();
      all.insert(members.begin(), members.end());
    }
    return all.size() < ranks;
  }

  std::map<std::string, Namesakes> groups_;
  std::map<std::pair<std::string, int64_t>, std::string> own_names_;  // by name and rank
  std::set<std::string> unclear_;
};

template <typename Value>
std::map<std::string, Value> renamed(std::map<std::string, Value> by_name, const Names& names,
                                     int64_t rank) {
  std::map<std::string, Value> all;
  for (auto& [name, value] : by_name) all[names.of(name, rank)] = std::move(value);
  return all;
}

}  // namespace

void tell_namesakes_apart(JobEvidence* job) {
  const Names names(job->dumps);
  if (names.empty()) return;
  for (FlightDump& dump : job->dumps) {
    dump.groups = renamed(std::move(dump.groups), names, dump.rank);
    dump.status = renamed(std::move(dump.status), names, dump.rank);
    for (FlightEntry& entry : dump.entries) entry.group = names.of(entry.group, dump.rank);
  }
  for (LogEvent& event : job->events)
    if (event.rank >= 0 && !event.local) event.group = names.of(event.group, event.rank);
}

}  // namespace lockstep
