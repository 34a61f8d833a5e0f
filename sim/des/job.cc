#include "sim/des/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/des/random.h"

namespace lockstep {
namespace {

class Ranges {
 public:
  void check(const std::string& name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    add(fmt::format("{} is {}", name, value), fmt::format("{} to {}", least, most));
  }
  void add(const std::string& message, const std::string& allowed) {
    InputError problem;
    problem.message = message;
    problem.allowed = allowed;
    problems.push_back(problem);
  }
  InputErrors problems;
};

void check_buckets(const std::string& name, const std::vector<BucketWork>& buckets,
                   int64_t backward_ns, Ranges* ranges) {
  ranges->check("number of buckets " + name, static_cast<int64_t>(buckets.size()), 0, kMostBuckets);
  int64_t last_ns = 0;
  for (const BucketWork& bucket : buckets) {
    const std::string which = fmt::format("bucket {} {}: ", bucket.bucket, name);
    ranges->check(which + "bytes", bucket.bytes, 0, kMostBytes);
    ranges->check(which + "ready_ns", bucket.ready_ns, last_ns, backward_ns);
    ranges->check(which + "extra_ns", bucket.extra_ns, 0, kMostAlphaNs);
    last_ns = bucket.ready_ns;
  }
}

// What a run takes at most, but for faults: every factor at its largest.
__int128 longest_ns(const Job& job) {
  __int128 step = job.load_ns + job.optimizer_ns + job.rebuild_ns;
  const double worst = static_cast<double>(factor_at(job.noise, 1 - 0x1p-40)) / kOne;
  const double slowed = worst * (1 + static_cast<double>(job.overlap_slowdown) / kOne);
  step += static_cast<__int128>(static_cast<double>(job.forward_ns + job.backward_ns) * slowed);
  for (const auto* buckets : {&job.first_step, &job.settled})
    for (const BucketWork& bucket : *buckets)
      step += bucket.extra_ns + all_reduce_ns(job.cost, bucket.bytes, job.ranks);
  return step * job.steps;
}

void check_links(const Job& job, Ranges* ranges) {
  if (job.links.empty()) return;
  if (job.cost.algorithm != Algorithm::ring)
    ranges->add("links of their own with algorithm " + std::string(to_word(job.cost.algorithm)),
                "links of their own are those of a ring");
  if (static_cast<int64_t>(job.links.size()) != job.ranks)
    ranges->add(fmt::format("{} links for {} ranks", job.links.size(), job.ranks),
                "one from each rank to the next");
  for (const LinkCost& link : job.links) {
    ranges->check("links alpha_ns", link.alpha_ns, 0, kMostAlphaNs);
    ranges->check("links beta_fs_per_byte", link.beta_fs_per_byte, 0, kMostFsPerByte);
    ranges->check("links gamma_fs_per_byte", link.gamma_fs_per_byte, 0, kMostFsPerByte);
  }
}

}  // namespace

InputErrors problems_of(const Job& job) {
  Ranges ranges;
  ranges.check("ranks", job.ranks, 1, kMostRanks);
  ranges.check("steps", job.steps, 1, kMostSteps);
  for (const auto& [name, ns] : {std::pair("load_ns", job.load_ns),
                                 {"forward_ns", job.forward_ns},
                                 {"backward_ns", job.backward_ns},
                                 {"optimizer_ns", job.optimizer_ns},
                                 {"rebuild_ns", job.rebuild_ns},
                                 {"collective_ns", job.collective_ns}})
    ranges.check(name, ns, 0, kMostAlphaNs * 1000);
  ranges.check("channels", job.channels, 1, 64);
  ranges.check("overlap_slowdown", job.overlap_slowdown, 0, 16 * kOne);
  ranges.check("sync_every", job.sync_every, 1, kMostSteps);
  for (const InputError& problem : problems_of(job.cost)) ranges.problems.push_back(problem);
  check_links(job, &ranges);
  check_buckets("of step 1", job.first_step, job.backward_ns, &ranges);
  check_buckets("from step 2 on", job.settled, job.backward_ns, &ranges);
  if (!ranges.problems.empty()) return ranges.problems;
  if (longest_ns(job) >= kMostNs)
    ranges.add(fmt::format("the run may take more than {} ns", kMostNs),
               "fewer steps, or shorter ones");
  return ranges.problems;
}

const std::vector<BucketWork>& buckets_of(const Job& job, int64_t step) {
  static const std::vector<BucketWork> kNone;
  if (!synchronizes(job, step)) return kNone;
  return step == 1 ? job.first_step : job.settled;
}

bool synchronizes(const Job& job, int64_t step) { return step % job.sync_every == 0; }

int64_t rank_factor(const Job& job, int64_t step, int64_t rank) {
  if (!job.noise.any() || job.noise.per_bucket) return kOne;
  return factor_at(job.noise, unit_of(RankStream(job.seed, step, -1).at(rank)));
}

int64_t bucket_factor(const Job& job, int64_t step, int64_t rank, int64_t bucket) {
  if (!job.noise.any() || !job.noise.per_bucket) return kOne;
  return factor_at(job.noise, unit_of(RankStream(job.seed, step, bucket).at(rank)));
}

}  // namespace lockstep
