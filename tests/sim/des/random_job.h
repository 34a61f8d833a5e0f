#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sim/des/job.h"

namespace lockstep {

// Jobs of every kind, each of its seed alone.

using Rng = std::mt19937_64;

inline int64_t drawn(Rng& rng, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(rng);
}

inline Noise random_noise(Rng& rng) {
  const auto kind = static_cast<Distribution>(drawn(rng, 0, 4));
  return {kind, static_cast<double>(drawn(rng, 1, 40)) / 100, drawn(rng, 0, 2) == 0};
}

inline std::vector<BucketWork> random_buckets(Rng& rng, int64_t backward_ns) {
  std::vector<BucketWork> buckets(static_cast<size_t>(drawn(rng, 1, 6)));
  int64_t ready_ns = 0;
  for (size_t b = 0; b < buckets.size(); ++b) {
    ready_ns = drawn(rng, ready_ns, backward_ns);
    buckets[b] = {static_cast<int64_t>(b), drawn(rng, 0, 100'000), ready_ns, drawn(rng, 0, 1) * 7,
                  drawn(rng, 0, 1) * drawn(rng, 0, 3000)};
  }
  buckets.back().ready_ns = backward_ns;
  return buckets;
}

inline RankEvents random_step(uint64_t seed) {
  Rng rng(seed);
  RankEvents step;
  step.compute_factor = drawn(rng, kOne / 2, 3 * kOne);
  step.load_ns = drawn(rng, 0, 1) * 999;
  step.backward_ns = drawn(rng, 0, 1) * 5000;
  step.wait_ns = drawn(rng, 0, 1) * 20'000;
  step.optimizer_ns = drawn(rng, 0, 1) * 300;
  if (drawn(rng, 0, 1) == 1) step.pauses.push_back({drawn(rng, 0, 9000), 4000});
  step.queue_ns = drawn(rng, 0, 1) * 700;
  step.queue_fs_per_byte = drawn(rng, 0, 1) * 1'000'000;
  return step;
}

inline CostModel random_cost(Rng& rng) {
  CostModel cost;
  cost.algorithm = static_cast<Algorithm>(drawn(rng, 0, 6));
  cost.link = {drawn(rng, 0, 500), drawn(rng, 0, 2'000'000), drawn(rng, 0, 300'000)};
  cost.across = {drawn(rng, 0, 5000), drawn(rng, 0, 9'000'000), 0};
  cost.ranks_per_host = drawn(rng, 1, 4);
  cost.overhead_ns = drawn(rng, 0, 100);
  if (cost.ranks_per_host == 1 || drawn(rng, 0, 1) == 0) return cost;
  cost.nics_per_host = drawn(rng, 0, 4);
  cost.hosts_per_rack = drawn(rng, 1, 3);
  cost.oversubscription_millis = drawn(rng, 1000, 9000);
  cost.stripes = drawn(rng, 0, 2) == 0;
  cost.rails = drawn(rng, 0, 2) == 0;
  return cost;
}

inline Job random_job(uint64_t seed) {
  Rng rng(seed);
  Job job;
  job.ranks = drawn(rng, 1, 9);
  job.steps = drawn(rng, 1, 4);
  job.seed = seed;
  job.load_ns = drawn(rng, 0, 500);
  job.forward_ns = drawn(rng, 0, 20'000);
  job.backward_ns = drawn(rng, 1, 50'000);
  job.optimizer_ns = drawn(rng, 0, 500);
  job.first_step = random_buckets(rng, job.backward_ns);
  job.settled = random_buckets(rng, job.backward_ns);
  job.rebuild_ns = drawn(rng, 0, 300);
  job.noise = random_noise(rng);
  job.cost = random_cost(rng);
  job.channels = drawn(rng, 1, 3);
  job.overlap_slowdown = drawn(rng, 0, 1) * kOne / 25;
  job.comm_slowdown = drawn(rng, 0, 1) * drawn(rng, 0, 3 * kOne);
  for (int64_t rank = 0; rank < job.ranks; ++rank)
    if (drawn(rng, 0, 3) == 0) job.schedule.touched.push_back(rank);
  job.schedule.at = [seed](int64_t rank, int64_t step) {
    return random_step(seed * 1000 + static_cast<uint64_t>(rank * 10 + step));
  };
  return job;
}

// Micro-batches, local steps, averages of parameters in groups.
inline Job random_training(uint64_t seed) {
  Job job = random_job(seed);
  Rng rng(seed + 77);
  job.passes = drawn(rng, 1, 3);
  job.each_pass = drawn(rng, 0, 2) == 0;
  if (drawn(rng, 0, 3) == 0) job.local_from = drawn(rng, 1, job.steps + 1);
  job.averaged_bytes = drawn(rng, 0, 300'000);
  int64_t below = 1;
  for (int64_t level = drawn(rng, 0, 2); level > 0; --level) {
    std::vector<int64_t> sizes;
    for (int64_t size = below; size <= job.ranks; size += below)
      if (job.ranks % size == 0) sizes.push_back(size);
    below = sizes[static_cast<size_t>(drawn(rng, 0, static_cast<int64_t>(sizes.size()) - 1))];
    job.averaging.push_back({below, drawn(rng, 1, 3), drawn(rng, 0, 1)});
  }
  return job;
}

// Units of parameters, and a job that has them.
inline ParameterShards random_parts(Rng& rng, int64_t forward_ns, int64_t backward_ns) {
  ParameterShards parts;
  parts.units.resize(static_cast<size_t>(drawn(rng, 1, 5)));
  parts.prefetch = drawn(rng, 0, 3);
  parts.reshard = drawn(rng, 0, 1) == 0;
  int64_t forward = 0, backward = backward_ns;
  for (size_t u = 0; u < parts.units.size(); ++u) {
    ParameterShards::Unit& unit = parts.units[u];
    unit.bytes = drawn(rng, 0, 100'000);
    if (u == 0) continue;
    unit.forward_ns = forward = drawn(rng, forward, forward_ns);
    unit.done_ns = drawn(rng, 0, backward);
    unit.backward_ns = backward = drawn(rng, 0, unit.done_ns);
  }
  return parts;
}

inline Job random_units(uint64_t seed) {
  Job job = random_job(seed);
  Rng rng(seed + 99);
  job.parts = random_parts(rng, job.forward_ns, job.backward_ns);
  job.settled.clear();
  for (size_t u = job.parts->units.size(); u-- > 0;)
    job.settled.push_back({static_cast<int64_t>(job.settled.size()), drawn(rng, 0, 100'000),
                           u == 0 ? job.backward_ns : job.parts->units[u].done_ns,
                           drawn(rng, 0, 1) * 7, drawn(rng, 0, 1) * drawn(rng, 0, 3000)});
  job.first_step = job.settled;
  job.rebuild_ns = job.comm_slowdown = 0;
  job.noise.per_bucket = false;
  job.passes = drawn(rng, 1, 3);
  job.each_pass = drawn(rng, 0, 1) == 0;
  return job;
}

}  // namespace lockstep
