#include "sim/analysis/group_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

using Key = std::pair<std::string, std::vector<int64_t>>;

// Ascending, in the run, and with the rank that tells of it.
bool is_sound(const RankGroup& group, int64_t rank, int64_t world_size) {
  const std::vector<int64_t>& ranks = group.ranks;
  return std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end() &&
         std::binary_search(ranks.begin(), ranks.end(), rank) && ranks.front() >= 0 &&
         ranks.back() < world_size;
}

bool share_ranks(const RankGroup& a, const RankGroup& b) {
  return std::any_of(a.ranks.begin(), a.ranks.end(), [&](int64_t rank) {
    return std::binary_search(b.ranks.begin(), b.ranks.end(), rank);
  });
}

void complete(const RankGroup& told, RankGroup* known) {
  if (known->description.empty()) known->description = told.description;
  known->timeout_ms = std::max(known->timeout_ms, told.timeout_ms);
}

// The order of names that are numbers, as places in `groups`.
std::vector<size_t> order_of(const std::vector<RankGroup>& groups) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int64_t> numbers;
  for (const RankGroup& group : groups)
    if (const auto number = number_in<int64_t>(group.name)) numbers.push_back(*number);
  if (numbers.size() == groups.size())
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return numbers[a] < numbers[b]; });
  return order;
}

void sort(GroupTable* table) {
  const std::vector<size_t> order = order_of(table->groups);
  std::vector<RankGroup> sorted;
  std::vector<size_t> now(order.size());
  for (const size_t place : order) {
    now[place] = sorted.size();
    sorted.push_back(std::move(table->groups[place]));
  }
  table->groups = std::move(sorted);
  for (auto& places : table->places)
    for (auto& place : places)
      if (place) place = now[*place];
}

void tell_apart(std::vector<RankGroup>* groups) {
  std::vector<bool> unclear(groups->size());
  for (size_t i = 0; i < groups->size(); ++i) {
    unclear[i] = (*groups)[i].name == kGroupOfAll;
    for (size_t j = 0; j < groups->size(); ++j)
      if (i != j && (*groups)[i].name == (*groups)[j].name &&
          share_ranks((*groups)[i], (*groups)[j]))
        unclear[i] = true;
  }
  for (size_t i = 0; i < groups->size(); ++i)
    if (RankGroup& group = (*groups)[i]; unclear[i])
      group.name = fmt::format("{} [{}]", group.name, fmt::join(group.ranks, ", "));
}

}  // namespace

std::optional<size_t> GroupTable::place_of(size_t rank, int64_t subject) const {
  if (rank >= places.size() || subject < 0) return std::nullopt;
  const auto own = static_cast<size_t>(subject);
  return own < places[rank].size() ? places[rank][own] : std::nullopt;
}

bool GroupTable::has(size_t group, int64_t rank) const {
  const std::vector<int64_t>& ranks = groups[group].ranks;
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

GroupTable groups_of(const RunOutcome& outcome) {
  GroupTable table;
  std::map<Key, size_t> known;
  const int64_t world_size = ranks_of(outcome.plan.scenario);
  for (size_t rank = 0; rank < outcome.groups.size(); ++rank) {
    auto& places = table.places.emplace_back();
    for (const RankGroup& group : outcome.groups[rank]) {
      auto& place = places.emplace_back();
      if (!is_sound(group, static_cast<int64_t>(rank), world_size)) continue;
      const auto [found, fresh] = known.try_emplace({group.name, group.ranks}, table.groups.size());
      if (fresh) table.groups.push_back(group);
      place = found->second;
      complete(group, &table.groups[found->second]);
    }
  }
  sort(&table);
  tell_apart(&table.groups);
  return table;
}

}  // namespace lockstep
