#include "sim/tools/explain/late_chain.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr double kExplained = 0.7;
constexpr size_t kMostGroupsTold = 6;

std::optional<size_t> place_of_rank(const GroupArrivals& arrivals, int64_t rank) {
  const auto found = std::find(arrivals.ranks.begin(), arrivals.ranks.end(), rank);
  if (found == arrivals.ranks.end()) return std::nullopt;
  return static_cast<size_t>(found - arrivals.ranks.begin());
}

// In all its calls together; of ranks that are in the group.
double waited_ms(const GroupArrivals& arrivals, size_t rank, size_t straggler) {
  double sum = 0;
  for (const std::vector<double>& came : arrivals.came_ms) sum += came[straggler] - came[rank];
  return sum;
}

double late_ms(const GroupArrivals& arrivals, size_t rank) {
  double sum = 0;
  for (const std::vector<double>& came : arrivals.came_ms) sum += came[rank] - middle(came);
  return sum;
}

bool waits_elsewhere(int64_t rank, const LateIn& where, int64_t straggler,
                     const std::vector<LateIn>& all) {
  const auto late = place_of_rank(where.arrivals, rank);
  if (!late) return false;
  const double to_explain = kExplained * late_ms(where.arrivals, *late);
  return std::any_of(all.begin(), all.end(), [&](const LateIn& other) {
    if (other.found.guilty != RankSet{straggler}) return false;
    const auto waits = place_of_rank(other.arrivals, rank);
    const auto awaited = place_of_rank(other.arrivals, straggler);
    return waits && awaited && waited_ms(other.arrivals, *waits, *awaited) >= to_explain;
  });
}

bool explains_all(int64_t straggler, const std::vector<LateIn>& all) {
  return std::all_of(all.begin(), all.end(), [&](const LateIn& where) {
    return std::all_of(where.found.guilty.begin(), where.found.guilty.end(), [&](int64_t rank) {
      return rank == straggler || waits_elsewhere(rank, where, straggler, all);
    });
  });
}

FlightFinding told_of(int64_t straggler, const RankSet& others, const std::vector<LateIn>& all) {
  const auto lateness_of = [&](const LateIn& one) {
    return one.found.guilty.contains(straggler) ? one.found.lateness_ms.value_or(0) : -1;
  };
  const auto most = std::max_element(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return lateness_of(a) < lateness_of(b);
  });
  FlightFinding finding = most->found;
  size_t told = 0;
  for (const LateIn& one : all) {
    if (&one != &*most && ++told < kMostGroupsTold)
      finding.evidence.push_back(one.found.evidence.back());
    finding.victims.insert(one.arrivals.ranks.begin(), one.arrivals.ranks.end());
  }
  finding.victims.erase(straggler);
  if (!others.empty())
    finding.evidence.push_back(
        fmt::format("{0} waited for rank {1} for about as long as {0} came late to other groups",
                    rank_list(others), straggler));
  return finding;
}

}  // namespace

std::optional<FlightFinding> straggler_behind(const std::vector<LateIn>& all, bool clocks_agree) {
  RankSet late, roots;
  for (const LateIn& one : all) {
    if (!one.found.decided || (!one.arrivals.by_runs && !clocks_agree)) return std::nullopt;
    late.insert(one.found.guilty.begin(), one.found.guilty.end());
  }
  for (const int64_t rank : late)
    if (explains_all(rank, all)) roots.insert(rank);
  if (roots.size() != 1) return std::nullopt;
  late.erase(*roots.begin());
  return told_of(*roots.begin(), late, all);
}

}  // namespace lockstep
