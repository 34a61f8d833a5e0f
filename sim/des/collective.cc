#include "sim/des/collective.h"

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {

bool is_power_of_two(int64_t ranks) { return std::has_single_bit(static_cast<uint64_t>(ranks)); }

bool is_ring(Algorithm algorithm) {
  return algorithm == Algorithm::ring || algorithm == Algorithm::ring_segmented;
}

std::vector<int64_t> ring_costs(const Job& job, int64_t bytes) {
  std::vector<int64_t> costs(static_cast<size_t>(job.ranks));
  for (size_t r = 0; r < costs.size(); ++r)
    costs[r] = ring_round_ns(job.cost, link_of(job, r), bytes, job.ranks);
  return costs;
}

void through_ring(const std::vector<int64_t>& costs, std::vector<int64_t>* times) {
  const size_t ranks = times->size();
  for (size_t round = 0; round < 2 * (ranks - 1); ++round) {
    for (size_t r = 0; r < ranks; ++r) (*times)[r] += costs[r];
    // From the last to the first, so that each still sees what its neighbour had.
    const int64_t last = times->back();
    for (size_t r = ranks - 1; r > 0; --r) (*times)[r] = std::max((*times)[r], (*times)[r - 1]);
    times->front() = std::max(times->front(), last);
  }
}

Exchange exchange_of(size_t distance, bool halves, bool adds) {
  const auto apart = static_cast<int64_t>(distance);
  return {apart, halves ? 2 * apart : 1, adds};
}

void exchange(size_t distance, int64_t cost, std::vector<int64_t>* times) {
  for (size_t r = 0; r < times->size(); ++r) {
    const size_t peer = r ^ distance;
    if (peer < r) continue;
    const int64_t end = std::max((*times)[r], (*times)[peer]) + cost;
    (*times)[r] = (*times)[peer] = end;
  }
}

void through_exchanges(const Job& job, int64_t bytes, std::vector<int64_t>* times) {
  const bool halves = job.cost.algorithm == Algorithm::halving_doubling;
  const size_t ranks = times->size();
  for (size_t distance = 1; distance < ranks; distance *= 2)
    exchange(distance, exchange_ns(job.cost, exchange_of(distance, halves, true), bytes, job.ranks),
             times);
  if (!halves) return;
  for (size_t distance = ranks / 2; distance > 0; distance /= 2)
    exchange(distance, exchange_ns(job.cost, exchange_of(distance, true, false), bytes, job.ranks),
             times);
}

}  // namespace

LinkCost link_of(const Job& job, size_t rank) {
  return job.links.empty() ? flat_link(job.cost, job.ranks) : job.links[rank];
}

int64_t wire_ns(const Job& job, int64_t bytes) {
  if (job.links.empty()) return wire_ns(job.cost, bytes, job.ranks);
  int64_t longest = 0;
  CostModel cost = job.cost;
  for (const LinkCost& link : job.links) {
    cost.link = link;
    longest = std::max(longest, wire_ns(cost, bytes, job.ranks));
  }
  return longest;
}

bool has_rounds(const Job& job) {
  if (!job.cost.table.empty() || job.ranks == 1) return false;
  const Algorithm algorithm = job.cost.algorithm;
  if (is_ring(algorithm)) return true;
  return is_power_of_two(job.ranks) &&
         (algorithm == Algorithm::recursive_doubling || algorithm == Algorithm::halving_doubling);
}

std::vector<int64_t> ends_by_formula(const Job& job, const std::vector<int64_t>& starts,
                                     int64_t bytes) {
  const int64_t last = *std::max_element(starts.begin(), starts.end());
  return std::vector<int64_t>(starts.size(), last + all_reduce_ns(job.cost, bytes, job.ranks));
}

std::vector<int64_t> ends_by_rounds(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes) {
  if (!has_rounds(job)) return ends_by_formula(job, starts, bytes);
  std::vector<int64_t> times = starts;
  for (int64_t& time : times) time += job.cost.overhead_ns;
  if (is_ring(job.cost.algorithm)) {
    through_ring(ring_costs(job, bytes), &times);
  } else {
    through_exchanges(job, bytes, &times);
  }
  return times;
}

}  // namespace lockstep
