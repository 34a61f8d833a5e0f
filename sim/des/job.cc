#include "sim/des/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include "reducer/shard_tree.h"
#include "scenarios/base/text.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<Distribution, const char*>, 5> kNoiseWords = {
    {{Distribution::none, "none"},
     {Distribution::normal, "normal"},
     {Distribution::uniform, "uniform"},
     {Distribution::lognormal, "lognormal"},
     {Distribution::exponential, "exponential"}}};

// A factor of 2^20 is a stall, not noise; beyond it nothing would be left of the nanoseconds.
constexpr double kMostFactor = 1 << 20;

double polynomial(std::initializer_list<double> coefficients, double x) {
  double sum = 0;
  for (const double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

double first_guess(double u) {
  if (u < 0.02425) {
    const double q = std::sqrt(-2 * std::log(u));
    return polynomial({-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                       -2.549732539343734e+00, 4.374664141464968e+00, 2.938163982698783e+00},
                      q) /
           polynomial({7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                       3.754408661907416e+00, 1},
                      q);
  }
  const double q = u - 0.5, r = q * q;
  return q *
         polynomial({-3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02,
                     1.383577518672690e+02, -3.066479806614716e+01, 2.506628277459239e+00},
                    r) /
         polynomial({-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                     6.680131188771972e+01, -1.328068155288572e+01, 1},
                    r);
}

double factor_of(const Noise& noise, double u) {
  switch (noise.distribution) {
    case Distribution::none:
      return 1;
    case Distribution::normal:
      return 1 + noise.spread * normal_quantile(u);
    case Distribution::uniform:
      return 1 + noise.spread * (2 * u - 1);
    case Distribution::lognormal:
      return std::exp(noise.spread * normal_quantile(u));
    case Distribution::exponential:
      return 1 - noise.spread * std::log1p(-u);
  }
  check_failed("distribution", __FILE__, __LINE__, "no such distribution");
}

InputError refused_noise(const std::string& words, const std::string& why) {
  return option_error(
      fmt::format("noise \"{}\": {}", words, why),
      fmt::format("none, or normal, uniform, lognormal or exponential with a spread of 0 to {}, as "
                  "normal:0.02; with \",bucket\" a draw for each bucket",
                  kMostSpread));
}

}  // namespace

const char* to_word(Distribution distribution) {
  for (const auto& [known, word] : kNoiseWords)
    if (known == distribution) return word;
  check_failed("distribution", __FILE__, __LINE__, "no such distribution");
}

Expected<Noise> noise_of(const std::string& words) {
  Noise noise;
  std::string rest = words;
  if (const size_t comma = rest.find(','); comma != std::string::npos) {
    if (rest.substr(comma) != ",bucket")
      return refused_noise(words, "after the comma stands no \"bucket\"");
    noise.per_bucket = true;
    rest.resize(comma);
  }
  const size_t colon = rest.find(':');
  const std::string name = rest.substr(0, colon);
  const auto known = std::find_if(kNoiseWords.begin(), kNoiseWords.end(),
                                  [&](const auto& entry) { return entry.second == name; });
  if (known == kNoiseWords.end()) return refused_noise(words, "no such distribution");
  noise.distribution = known->first;
  if (noise.distribution == Distribution::none) {
    if (colon != std::string::npos) return refused_noise(words, "none has no spread");
    if (noise.per_bucket) return refused_noise(words, "none draws nothing");
    return noise;
  }
  if (colon == std::string::npos) return refused_noise(words, "without a spread");
  const auto spread = number_in<double>(std::string_view(rest).substr(colon + 1));
  if (!spread) return refused_noise(words, "the spread is no number");
  noise.spread = *spread;
  if (!(noise.spread >= 0 && noise.spread <= kMostSpread))
    return refused_noise(words, "the spread is out of range");
  return noise;
}

double normal_quantile(double u) {
  if (u > 0.5) return -normal_quantile(1 - u);  // where erfc() has its digits
  const double z = first_guess(u);
  const double error = 0.5 * std::erfc(-z / std::numbers::sqrt2) - u;
  const double step = error * std::sqrt(2 * std::numbers::pi) * std::exp(z * z / 2);
  return z - step / (1 + z * step / 2);
}

int64_t factor_at(const Noise& noise, double u) {
  const double factor = std::clamp(factor_of(noise, u), 0.0, kMostFactor);
  return std::llround(factor * static_cast<double>(kOne));
}

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
    ranges->check(which + "work_ns", bucket.work_ns, 0, kMostAlphaNs);
    ranges->check(which + "shard_work_ns", bucket.shard_work_ns, 0, kMostAlphaNs);
    last_ns = bucket.ready_ns;
  }
}

// What units of parameters take to be gathered, in forward and in backward.
int64_t gathers_ns(const Job& job) {
  int64_t ns = 0;
  if (!job.parts) return ns;
  for (const ParameterShards::Unit& unit : job.parts->units)
    ns += 2 * unit_ns(job, Operation::all_gather, unit.bytes);
  return ns;
}

// A bucket's collectives, one after the other.
int64_t bucket_ns(const Job& job, int64_t bytes) {
  if (has_copies(job))
    return unit_ns(job, Operation::reduce_scatter, bytes) +
           unit_ns(job, Operation::all_reduce, bytes);
  const int64_t ns =
      collective_ns(job.cost, bucket_operation(job), exchanged_bytes(job, bytes), job.ranks);
  return exchanges_parts(job) ? ns + all_gather_ns(job.cost, bytes, job.ranks) : ns;
}

// What a run takes at most, but for faults: every factor at its largest.
__int128 longest_ns(const Job& job) {
  __int128 step = job.rebuild_ns;
  const double worst = static_cast<double>(factor_at(job.noise, 1 - 0x1p-40)) / kOne;
  const double slowed = worst * (1 + static_cast<double>(job.overlap_slowdown) / kOne);
  auto compute_ns = static_cast<double>(job.forward_ns + job.backward_ns);
  for (const auto* buckets : {&job.first_step, &job.settled})
    for (const BucketWork& bucket : *buckets) {
      compute_ns += static_cast<double>(std::max(bucket.work_ns, bucket.shard_work_ns));
      step += bucket.extra_ns + scaled(bucket_ns(job, bucket.bytes), kOne + job.comm_slowdown);
    }
  step += scaled(gathers_ns(job), kOne + job.comm_slowdown);
  step += static_cast<__int128>(compute_ns * slowed);
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

// What one world size or operation measured says nothing of another.
void check_tables(const Job& job, Ranges* ranges) {
  const auto check = [&](int64_t members, Operation operation) {
    if (const auto problem = problem_with_ranks(job.cost, members, operation))
      ranges->problems.push_back(*problem);
  };
  check(job.ranks, bucket_operation(job));
  if (exchanges_parts(job) || job.parts) check(job.ranks, Operation::all_gather);
  for (const Averaging& level : job.averaging)
    if (level.ranks != job.ranks || exchanges_parts(job)) check(level.ranks, Operation::all_reduce);
}

void check_shards(const Job& job, Ranges* ranges) {
  if (!job.shards || job.ranks < 1) return;
  const VirtualShards& shards = *job.shards;
  ranges->check("virtual shards", shards.count, job.ranks, kMostPasses * job.ranks);
  ranges->check("micro-batches of a virtual shard", shards.micro_batches, 1, kMostPasses);
  ranges->check("roots of a rank", shards.roots, 1, kMostRoots);
  const int64_t passes = (shards.count + job.ranks - 1) / job.ranks * shards.micro_batches;
  ranges->check("passes of virtual shards", job.passes, passes, passes);
  if (job.each_pass || !job.links.empty())
    ranges->add("virtual shards that are communicated in each pass, or over links of their own",
                "neither");
}

void check_units(const Job& job, Ranges* ranges) {
  const ParameterShards& parts = *job.parts;
  const auto units = static_cast<int64_t>(parts.units.size());
  ranges->check("units of parameters", units, 1, kMostBuckets);
  ranges->check("prefetch", parts.prefetch, 0, kMostPrefetch);
  int64_t forward_ns = 0, backward_ns = job.backward_ns;
  for (size_t u = 0; u < parts.units.size(); ++u) {
    const ParameterShards::Unit& unit = parts.units[u];
    const std::string which = fmt::format("unit {}: ", u);
    ranges->check(which + "bytes", unit.bytes, 0, kMostBytes);
    if (u == 0) continue;
    ranges->check(which + "forward_ns", unit.forward_ns, forward_ns, job.forward_ns);
    ranges->check(which + "done_ns", unit.done_ns, 0, backward_ns);
    ranges->check(which + "backward_ns", unit.backward_ns, 0, unit.done_ns);
    forward_ns = unit.forward_ns;
    backward_ns = unit.backward_ns;
  }
}

// Groups that are no whole part of a host or of a rack, or several hosts with a part of one.
bool fits_network(const CostModel& cost, int64_t held_by) {
  const int64_t inside = cost.ranks_per_host;
  if (inside <= 1) return true;
  if (held_by % inside != 0) return inside % held_by == 0 && !shares_cores(cost);
  const int64_t hosts = held_by / inside;
  return hosts % cost.hosts_per_rack == 0 || cost.hosts_per_rack % hosts == 0;
}

void check_copies(const Job& job, Ranges* ranges) {
  const int64_t held_by = job.parts->shard_ranks;
  ranges->check("ranks that hold a copy of the parameters", held_by, 0, kMostRanks);
  if (!has_copies(job) || held_by < 0) return;
  if (job.ranks % held_by != 0)
    ranges->add(fmt::format("copies held by {} ranks each, of {} in all", held_by, job.ranks),
                "whole groups");
  if (!fits_network(job.cost, held_by))
    ranges->add(
        fmt::format("copies held by {} ranks each, on hosts of {}", held_by,
                    job.cost.ranks_per_host),
        "whole hosts, and of racks whole ones or a part that divides them; or a part that divides "
        "a host whose ranks share neither cores nor PCI Express");
  if (!job.cost.tables.empty())
    ranges->add("measured collectives of ranks that are not all there are", "links");
  if (job.channels > 1)
    ranges->add(fmt::format("{} channels where several copies are held in parts", job.channels),
                "1: all-reduces between hosts have links of their own");
  if (job.overlap_slowdown > 0 && (job.noise.any() || !job.schedule.touched.empty()))
    ranges->add(
        "overlap_slowdown of ranks that are late apart, where several copies are held in "
        "parts",
        "0, or ranks without noise and faults");
}

// Draws and links that nothing about parts was thought through for, and steps without them.
void check_parts(const Job& job, Ranges* ranges) {
  if (!job.parts) return;
  check_units(job, ranges);
  ranges->check("buckets of units", static_cast<int64_t>(job.settled.size()),
                static_cast<int64_t>(job.parts->units.size()),
                static_cast<int64_t>(job.parts->units.size()));
  if (job.settled != job.first_step || job.rebuild_ns != 0)
    ranges->add("units of parameters that are laid out anew", "the same in every step");
  if (job.comm_slowdown > 0)
    ranges->add("comm_slowdown where parameters are held in parts", "0: it is not known there");
  if (job.noise.any() && job.noise.per_bucket)
    ranges->add("noise of each bucket where parameters are held in parts", "noise of each rank");
  check_copies(job, ranges);
  if (job.shards || job.local_from || !job.averaging.empty() || !job.links.empty())
    ranges->add(
        "parameters in parts with virtual shards, local steps, averages of parameters, or links of "
        "their own",
        "none of these");
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
  ranges.check("comm_slowdown", job.comm_slowdown, 0, 16 * kOne);
  ranges.check("passes", job.passes, 1, kMostPasses);
  for (const InputError& problem : problems_of(job.cost)) ranges.problems.push_back(problem);
  check_links(job, &ranges);
  check_averaging(job, &ranges);
  check_shards(job, &ranges);
  check_parts(job, &ranges);
  check_tables(job, &ranges);
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

namespace {

// Those that the reducer has in this pass, whether it sends them or not.
const std::vector<BucketWork>& laid_out_in(const Job& job, int64_t pass) {
  return pass <= first_due(job) ? job.first_step : job.settled;
}

}  // namespace

const std::vector<BucketWork>& buckets_of(const Job& job, int64_t pass) {
  static const std::vector<BucketWork> kNone;
  return communicates(job, pass) ? laid_out_in(job, pass) : kNone;
}

int64_t first_pass_of(const Job& job, int64_t rank) {
  if (!job.shards) return 1;
  const int64_t own = shards_of_rank(job.shards->count, job.ranks, rank).size();
  return job.passes - own * job.shards->micro_batches + 1;
}

bool is_uneven(const Job& job) { return job.shards && job.shards->count % job.ranks != 0; }

bool exchanges_parts(const Job& job) {
  return job.shards && !is_one_addition(job.ranks, job.shards->roots);
}

Operation bucket_operation(const Job& job) {
  if (job.parts) return Operation::reduce_scatter;
  return exchanges_parts(job) ? Operation::all_to_all : Operation::all_reduce;
}

int64_t exchanged_bytes(const Job& job, int64_t bucket_bytes) {
  return job.shards ? bucket_bytes * job.shards->roots : bucket_bytes;
}

int64_t bucket_work_ns(const Job& job, int64_t pass) {
  const bool due = is_due(job, pass);
  const bool ends_shard = job.shards && pass % job.shards->micro_batches == 0;
  int64_t work_ns = 0;
  if (!due && !ends_shard) return work_ns;
  for (const BucketWork& bucket : laid_out_in(job, pass))
    work_ns += due ? bucket.work_ns : bucket.shard_work_ns;
  return work_ns;
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
