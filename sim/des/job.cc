#include "sim/des/job.h"

#include <fmt/format.h>

#include <algorithm>

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
  __int128 step = job.rebuild_ns;
  const double worst = static_cast<double>(factor_at(job.noise, 1 - 0x1p-40)) / kOne;
  const double slowed = worst * (1 + static_cast<double>(job.overlap_slowdown) / kOne);
  step += static_cast<__int128>(static_cast<double>(job.forward_ns + job.backward_ns) * slowed);
  for (const auto* buckets : {&job.first_step, &job.settled})
    for (const BucketWork& bucket : *buckets)
      step += bucket.extra_ns + all_reduce_ns(job.cost, bucket.bytes, job.ranks);
  step = step * job.passes + job.load_ns + job.optimizer_ns;
  if (!job.averaging.empty()) step += all_reduce_ns(job.cost, job.averaged_bytes, job.ranks);
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

// The first pass whose gradients are due.
int64_t first_due(const Job& job) { return job.each_pass ? 1 : job.passes; }

void check_averaging(const Job& job, Ranges* ranges) {
  ranges->check("averaged_bytes", job.averaged_bytes, 0, kMostBytes);
  int64_t below = 1;
  for (const Averaging& level : job.averaging) {
    ranges->check("averaging period", level.period, 1, kMostSteps);
    ranges->check("averaging warmup", level.warmup, 0, kMostSteps);
    ranges->check("ranks of an averaging group", level.ranks, below, job.ranks);
    if (level.ranks < below || level.ranks > job.ranks) return;
    if (level.ranks % below != 0 || job.ranks % level.ranks != 0)
      ranges->add(fmt::format("averaging groups of {} ranks, of {} in all", level.ranks, job.ranks),
                  fmt::format("whole groups, of whole groups of {}", below));
    if (level.ranks < job.ranks && !job.links.empty())
      ranges->add("averaging groups of ranks with links of their own", "groups of all ranks");
    below = level.ranks;
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
  ranges.check("passes", job.passes, 1, kMostPasses);
  for (const InputError& problem : problems_of(job.cost)) ranges.problems.push_back(problem);
  check_links(job, &ranges);
  check_averaging(job, &ranges);
  check_buckets("of step 1", job.first_step, job.backward_ns, &ranges);
  check_buckets("from step 2 on", job.settled, job.backward_ns, &ranges);
  if (!ranges.problems.empty()) return ranges.problems;
  if (longest_ns(job) >= kMostNs)
    ranges.add(fmt::format("the run may take more than {} ns", kMostNs),
               "fewer steps, or shorter ones");
  return ranges.problems;
}

bool is_due(const Job& job, int64_t pass) { return job.each_pass || pass % job.passes == 0; }

bool communicates(const Job& job, int64_t pass) {
  return is_due(job, pass) && !(job.local_from && step_of_pass(job, pass) >= *job.local_from);
}

const std::vector<BucketWork>& buckets_of(const Job& job, int64_t pass) {
  static const std::vector<BucketWork> kNone;
  if (!communicates(job, pass)) return kNone;
  return pass <= first_due(job) ? job.first_step : job.settled;
}

bool rebuilds(const Job& job, int64_t pass) {
  return job.rebuild_ns > 0 && job.ranks > 1 && pass == first_due(job) + 1;
}

std::optional<size_t> averaging_after(const Job& job, int64_t step) {
  for (size_t level = job.averaging.size(); level-- > 0;) {
    const int64_t since = step - 1 - job.averaging[level].warmup;
    if (since >= 0 && since % job.averaging[level].period == 0) return level;
  }
  return std::nullopt;
}

}  // namespace lockstep
