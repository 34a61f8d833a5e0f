#include "sim/tools/explain/flight_mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kLongestStep = 256;  // calls of one group
constexpr int64_t kLeastRepeated = 3;  // calls that a loop repeats
constexpr int64_t kMostElements = int64_t{1} << 60;

// Of which all members' inputs have one size, and all outputs, too. all_gather and reduce_scatter
// of lists may be uneven; of reduce, gather and scatter one rank's differ.
bool has_equal_sizes(const std::string& operation) {
  constexpr std::array kNames = {"all_reduce",
                                 "allreduce_coalesced",
                                 "broadcast",
                                 "_all_gather_base",
                                 "_allgather_base",
                                 "all_gather_single",
                                 "all_gather_into_tensor_coalesced",
                                 "_reduce_scatter_base",
                                 "reduce_scatter_single",
                                 "reduce_scatter_tensor_coalesced"};
  return std::find(kNames.begin(), kNames.end(), operation) != kNames.end();
}

// "[[4,4],[2]]" -> 16, 2; "100" of a log -> 100. What stands behind "->" are the outputs.
std::vector<int64_t> element_counts(std::string_view sizes) {
  std::vector<int64_t> counts;
  int64_t product = 1;
  bool fresh = false;  // a list that may be a tensor's shape
  for (size_t at = 0; at < sizes.size(); ++at) {
    const char c = sizes[at];
    if (c == '[') {
      product = 1;
      fresh = true;
    } else if (c == ']') {
      if (fresh) counts.push_back(product);
      fresh = false;
    } else if (c >= '0' && c <= '9') {
      size_t end = at;
      while (end < sizes.size() && sizes[end] >= '0' && sizes[end] <= '9') ++end;
      const auto number = number_in<int64_t>(sizes.substr(at, end - at)).value_or(0);
      if (number > 0 && product > kMostElements / number) return {};
      product *= number;
      at = end - 1;
      if (!fresh) counts.push_back(product);
    }
  }
  return counts;
}

int64_t elements_of(const FlightEntry& entry) {
  int64_t all = 0;
  const std::string_view inputs = entry.sizes;
  for (const int64_t count : element_counts(inputs.substr(0, inputs.find("->"))))
    all = std::min(all + count, kMostElements);
  return all;
}

std::string counts_text(std::string_view sizes) {
  std::string text;
  for (const int64_t count : element_counts(sizes)) text += fmt::format("{} ", count);
  return text;
}

// What is told of all that are compared.
struct Told {
  bool sizes = true, dtypes = true;
};

// To be compared with what the others called.
std::string key_of(const FlightEntry& entry, const FlightEntry& first, bool from_log,
                   const Told& told) {
  if (!told.sizes || entry.operation != first.operation || !has_equal_sizes(first.operation))
    return entry.operation;
  if (from_log) return fmt::format("{} {}", entry.operation, elements_of(entry));
  const size_t arrow = std::min(entry.sizes.find("->"), entry.sizes.size());
  return fmt::format(
      "{} {}> {}{}", entry.operation, counts_text(std::string_view(entry.sizes).substr(0, arrow)),
      counts_text(std::string_view(entry.sizes).substr(arrow)), told.dtypes ? entry.dtypes : "");
}

std::string text_of(const FlightEntry& entry, bool with_sizes) {
  if (!with_sizes) return entry.operation;
  return fmt::format("{} of {} {}", entry.operation, entry.sizes, entry.dtypes);
}

bool is_compared(const FlightEntry& entry) { return !entry.operation.empty() && entry.comparable; }

bool all_call_one(const std::vector<FlightArrival>& arrivals) {
  const FlightEntry& first = *arrivals.front().entry;
  return std::all_of(arrivals.begin(), arrivals.end(), [&](const FlightArrival& arrival) {
    return arrival.entry->operation == first.operation && arrival.entry->sizes == first.sizes &&
           arrival.entry->dtypes == first.dtypes;
  });
}

// The first of them that two sides differ in.
Difference difference_of(const std::vector<const FlightEntry*>& of_sides, bool from_log) {
  const FlightEntry& first = *of_sides.front();
  const auto differ = [&](const auto& same) {
    return !std::all_of(of_sides.begin(), of_sides.end(), same);
  };
  if (differ([&](const FlightEntry* entry) { return entry->operation == first.operation; }))
    return Difference::operation;
  if (from_log || differ([&](const FlightEntry* entry) {
        return element_counts(entry->sizes) == element_counts(first.sizes);
      }))
    return Difference::size;
  return Difference::dtype;
}

std::optional<FlightMismatch> mismatch_at(const GroupRecord& group, int64_t sequence,
                                          const std::vector<FlightArrival>& arrivals) {
  if (all_call_one(arrivals)) return std::nullopt;
  std::vector<const FlightArrival*> compared;
  for (const FlightArrival& arrival : arrivals)
    if (is_compared(*arrival.entry)) compared.push_back(&arrival);
  if (compared.empty()) return std::nullopt;
  Told told;
  for (const FlightArrival* arrival : compared) {
    told.sizes &= !arrival->entry->sizes.empty();
    told.dtypes &= !arrival->entry->dtypes.empty();
  }
  FlightMismatch found;
  std::vector<const FlightEntry*> of_sides;
  const FlightEntry& first = *compared.front()->entry;
  for (const FlightArrival* arrival : compared) {
    const FlightEntry& entry = *arrival->entry;
    const std::string key = key_of(entry, first, group.from_log, told);
    const auto [side, fresh] = found.sides.try_emplace(key);
    side->second.ranks.insert(arrival->rank);
    if (!fresh) continue;
    side->second.what = text_of(entry, key != entry.operation);
    side->second.operation = entry.operation;
    side->second.elements = elements_of(entry);
    of_sides.push_back(&entry);
  }
  if (found.sides.size() < 2) return std::nullopt;
  found.sequence = sequence;
  found.difference = difference_of(of_sides, group.from_log);
  return found;
}

using Calls = std::map<int64_t, std::string>;  // by number

Calls calls_of(const GroupRecord& group, int64_t rank) {
  Calls calls;
  for (const auto& [sequence, arrivals] : group.collectives)
    for (const FlightArrival& arrival : arrivals)
      if (arrival.rank == rank)
        calls[sequence] = fmt::format("{} {} {}", arrival.entry->operation, arrival.entry->sizes,
                                      arrival.entry->dtypes);
  return calls;
}

// From that number on, as far as both went, which must be equally far.
bool is_other_order(const Calls& few, const Calls& many, int64_t sequence) {
  std::vector<std::string> of_few, of_many;
  for (auto at = few.lower_bound(sequence); at != few.end(); ++at) of_few.push_back(at->second);
  for (auto at = many.lower_bound(sequence); at != many.end(); ++at) of_many.push_back(at->second);
  if (of_few.size() < 2 || of_few.size() != of_many.size()) return false;
  std::sort(of_few.begin(), of_few.end());
  std::sort(of_many.begin(), of_many.end());
  return of_few == of_many;
}

// The calls before that number after which all repeats, or 0.
int64_t step_before(const Calls& calls, int64_t sequence) {
  const auto same = [&](int64_t a, int64_t b) {
    const auto one = calls.find(a), other = calls.find(b);
    return one != calls.end() && other != calls.end() && one->second == other->second;
  };
  for (int64_t step = 1; step <= kLongestStep && calls.contains(sequence - 2 * step); ++step) {
    bool repeats = true;
    for (int64_t back = 1; repeats && back <= std::max(step, kLeastRepeated); ++back)
      repeats = same(sequence - back, sequence - back - step);
    if (repeats) return step;
  }
  return 0;
}

// Goes on with its steps, where the others called something that is in none.
bool is_ahead(const Calls& few, const Calls& many, int64_t sequence) {
  const int64_t step = step_before(few, sequence);
  if (step == 0 || few.at(sequence) != few.at(sequence - step)) return false;
  for (int64_t back = 1; back <= step; ++back)
    if (few.at(sequence - back) == many.at(sequence)) return false;
  return true;
}

}  // namespace

bool is_symmetric(const std::string& operation) {
  constexpr std::array kNames = {"all_reduce",
                                 "allreduce_coalesced",
                                 "all_reduce_barrier",
                                 "all_gather",
                                 "all_gather_single",
                                 "all_gather_v",
                                 "_all_gather_base",
                                 "_allgather_base",
                                 "all_gather_into_tensor_coalesced",
                                 "allgather_coalesced",
                                 "ALLGATHER_coalesced",
                                 "reduce_scatter",
                                 "reduce_scatter_single",
                                 "reduce_scatter_v",
                                 "_reduce_scatter_base",
                                 "reduce_scatter_tensor_coalesced",
                                 "REDUCE_SCATTER_coalesced",
                                 "all_to_all",
                                 "all_to_all_single",
                                 "all_to_all_v_single",
                                 "barrier"};
  return std::find(kNames.begin(), kNames.end(), operation) != kNames.end();
}

bool is_waiting(const GroupRecord& group, const FlightArrival& arrival) {
  if (group.gloo) return true;
  const auto status = group.status.find(arrival.rank);
  return !arrival.entry->done &&
         (status == group.status.end() || status->second.completed < arrival.entry->sequence);
}

std::optional<FlightMismatch> first_mismatch(const GroupRecord& group) {
  std::optional<FlightMismatch> first;
  for (const auto& [sequence, arrivals] : group.collectives) {
    auto found = mismatch_at(group, sequence, arrivals);
    if (!found) continue;
    if (!first) first = std::move(found);
    first->open |= std::any_of(arrivals.begin(), arrivals.end(), [&](const FlightArrival& arrival) {
      return is_waiting(group, arrival);
    });
    if (first->open) break;
  }
  return first;
}

FlightClass class_of_mismatch(const GroupRecord& group, int64_t sequence, const RankSet& few,
                              const RankSet& many) {
  if (few.empty() || many.empty() || group.from_log) return FlightClass::mismatch;
  const Calls usual = calls_of(group, *many.begin());
  bool order = true, ahead = true;
  for (const int64_t rank : few) {
    const Calls calls = calls_of(group, rank);
    order = order && is_other_order(calls, usual, sequence);
    ahead = ahead && is_ahead(calls, usual, sequence);
  }
  return order ? FlightClass::order : ahead ? FlightClass::ahead : FlightClass::mismatch;
}

}  // namespace lockstep
