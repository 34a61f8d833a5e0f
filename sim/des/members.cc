#include "sim/des/members.h"

#include <algorithm>
#include <cmath>

#include "sim/des/random.h"

namespace lockstep {
namespace {

Factors factors_of(const Job& job, const RankStream& stream, const Member& member) {
  RankStream::Range all{UINT32_MAX, 0};
  for (const auto& [begin, end] : member.ranges) {
    const RankStream::Range range = stream.range(begin, end);
    all = {std::min(all.least, range.least), std::max(all.largest, range.largest)};
  }
  return {factor_at(job.noise, unit_of(all.largest)), factor_at(job.noise, unit_of(all.least))};
}

// Of the member's first rank alone, where it is one; else of the extremes of so many.
Factors extremes_of(const Job& job, const RankStream& largest, const RankStream& least,
                    const Member& member) {
  const double share = 1 / static_cast<double>(member.count);
  const double u = largest.of_all(), v = least.of_all();
  // 1 - (1 - v)^(1/n), without losing what is near 0.
  const double low = -std::expm1(std::log1p(-v) * share);
  return {factor_at(job.noise, std::min(std::pow(u, share), 1 - 0x1p-53)),
          factor_at(job.noise, std::max(low, 0x1p-60))};
}

template <class FactorsOf>
Draws draws_by(const Job& job, const std::vector<Member>& members, int64_t pass,
               FactorsOf factors) {
  Draws draws;
  draws.ranks.assign(members.size(), {});
  if (!job.noise.any()) return draws;
  const auto fill = [&](int64_t bucket, std::vector<Factors>* into) {
    into->clear();
    for (const Member& member : members) into->push_back(factors(member, bucket));
  };
  const auto& buckets = buckets_of(job, pass);
  if (!job.noise.per_bucket || buckets.empty()) {
    fill(-1, &draws.ranks);
    return draws;
  }
  draws.buckets.resize(buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b) fill(buckets[b].bucket, &draws.buckets[b]);
  return draws;
}

}  // namespace

std::vector<Member> each_rank(const Job& job) {
  std::vector<Member> members(static_cast<size_t>(job.ranks));
  for (int64_t rank = 0; rank < job.ranks; ++rank)
    members[static_cast<size_t>(rank)] = {rank, 1, false, {{rank, rank + 1}}};
  for (const int64_t rank : job.schedule.touched)
    if (rank < job.ranks) members[static_cast<size_t>(rank)].touched = true;
  return members;
}

std::vector<Member> classes_of(const Job& job) {
  Member others{-1, 0, false, {}};
  std::vector<Member> members;
  const auto add_others = [&](int64_t begin, int64_t end) {
    if (begin >= end) return;
    if (others.count == 0) others.rank = begin;
    others.count += end - begin;
    others.ranges.emplace_back(begin, end);
  };
  int64_t next = 0;
  for (const int64_t rank : job.schedule.touched) {
    if (rank >= job.ranks) break;
    add_others(next, rank);
    members.push_back({rank, 1, true, {{rank, rank + 1}}});
    next = rank + 1;
  }
  add_others(next, job.ranks);
  if (others.count > 0) members.push_back(others);
  return members;
}

bool noise_ends_together(const Job& job) {
  if (!job.noise.any()) return true;
  // Draws of several passes add up to a sum of each rank's own.
  if (job.passes > 1 && !job.each_pass) return false;
  if (job.local_from && *job.local_from <= job.steps) return false;
  for (const auto* buckets : {&job.first_step, &job.settled})
    if (buckets->empty() || buckets->back().ready_ns != job.backward_ns) return false;
  return true;
}

bool groups_differ(const Job& job) {
  const bool groups = std::any_of(job.averaging.begin(), job.averaging.end(),
                                  [&](const Averaging& a) { return a.ranks < job.ranks; });
  return groups && !job.schedule.touched.empty();
}

Draws draws_of(const Job& job, const std::vector<Member>& members, int64_t pass) {
  return draws_by(job, members, pass, [&](const Member& member, int64_t bucket) {
    return factors_of(job, RankStream(job.seed, pass, bucket), member);
  });
}

Draws order_statistics(const Job& job, const std::vector<Member>& members, int64_t pass) {
  return draws_by(job, members, pass, [&](const Member& member, int64_t bucket) {
    const uint64_t seed = job.seed + static_cast<uint64_t>(member.rank);
    return extremes_of(job, RankStream(seed ^ 0x4c34, pass, bucket),
                       RankStream(seed ^ 0x4c35, pass, bucket), member);
  });
}

}  // namespace lockstep
