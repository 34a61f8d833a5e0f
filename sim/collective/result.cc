#include "sim/collective/result.h"

#include <algorithm>

#include "sim/judge/what_if.h"

namespace lockstep {
namespace {

const RankRow* find_row(const RankFile& rank, int64_t row) {
  const auto found = std::find_if(rank.rows.begin(), rank.rows.end(),
                                  [&](const RankRow& one) { return one.row == row; });
  return found == rank.rows.end() ? nullptr : &*found;
}

int64_t transfer_ns(const std::vector<const RankRow*>& ranks, size_t iteration) {
  int64_t last_begin = 0, last_end = 0;
  for (const RankRow* rank : ranks) {
    last_begin = std::max(last_begin, rank->begin_ns[iteration]);
    last_end = std::max(last_end, rank->end_ns[iteration]);
  }
  return std::max<int64_t>(1, last_end - last_begin);
}

CollectiveRow merged(const CollectiveSpec& spec, size_t group, size_t size,
                     const std::vector<const RankRow*>& ranks) {
  CollectiveRow row;
  row.group = group;
  row.bytes = spec.elements[size] * element_bytes(spec.dtype);
  row.count = spec.elements[size] / (spec.has_parts() ? spec.world_size : 1);
  for (const RankRow* rank : ranks) {
    row.wrong += rank->wrong;
    row.results += rank->results;
  }
  for (size_t i = 0; i < ranks.front()->begin_ns.size(); ++i)
    row.times_ns.push_back(transfer_ns(ranks, i));
  row.time_ns =
      bootstrap_median({row.times_ns.begin(), row.times_ns.end()}, kConfidence, spec.seed);
  row.algbw_gb_s = static_cast<double>(row.bytes) / row.time_ns.value;
  row.busbw_gb_s = row.algbw_gb_s * bus_factor(spec.operation, spec.world_size);
  return row;
}

std::string control_of(const std::vector<RankFile>& ranks) {
  int64_t wrong = 0;
  for (const RankFile& rank : ranks) {
    if (!rank.control_wrong) return "not_run";
    wrong += *rank.control_wrong;
  }
  if (ranks.empty()) return "not_run";
  return wrong > 0 ? "detected" : "missed";
}

}  // namespace

CollectiveResult collective_result(const CollectiveSpec& spec, const std::vector<RankFile>& ranks) {
  CollectiveResult result;
  result.control = control_of(ranks);
  for (size_t group = 0; group < spec.groups.size(); ++group)
    for (size_t size = 0; size < spec.elements.size(); ++size) {
      std::vector<const RankRow*> rows;
      for (const RankFile& rank : ranks)
        rows.push_back(find_row(rank, static_cast<int64_t>(size * spec.groups.size() + group)));
      if (rows.empty() || std::count(rows.begin(), rows.end(), nullptr) > 0) continue;
      result.rows.push_back(merged(spec, group, size, rows));
      result.wrong += result.rows.back().wrong;
      result.results += result.rows.back().results;
    }
  return result;
}

double average_busbw(const CollectiveResult& result, size_t group) {
  std::vector<double> all;
  for (const CollectiveRow& row : result.rows)
    if (row.group == group) all.push_back(row.busbw_gb_s);
  return all.empty() ? 0 : mean_of(all);
}

}  // namespace lockstep
