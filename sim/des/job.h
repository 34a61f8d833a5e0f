#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/phase.h"
#include "sim/des/cost.h"

namespace lockstep {

// By how much a rank's compute differs from step to step: a factor, drawn anew at each place.

enum class Distribution { none, normal, uniform, lognormal, exponential };
const char* to_word(Distribution distribution);

struct Noise {
  Distribution distribution = Distribution::none;
  // normal: standard deviation, lognormal: that of the logarithm, uniform: 1 - spread to
  // 1 + spread, exponential: 1 + spread x Exp(1). >= 0, at most kMostSpread.
  double spread = 0;
  // Each gradient bucket is late by a draw of its own, instead of the rank by one for all.
  bool per_bucket = false;
  bool any() const { return distribution != Distribution::none && spread > 0; }
  bool operator==(const Noise&) const = default;
};
inline constexpr double kMostSpread = 10;

// "normal:0.02", "lognormal:0.1,bucket"; "none". Bad input: the words, or a spread out of range.
Expected<Noise> noise_of(const std::string& words);

// Times are multiplied by these, 2^kFactorBits being 1.
inline constexpr int kFactorBits = 24;
inline constexpr int64_t kOne = int64_t{1} << kFactorBits;

// The quantile at u in (0, 1): never falls as u rises, never below 0. So the largest factor of many
// ranks is that of their largest u, and need not be looked for one by one.
int64_t factor_at(const Noise& noise, double u);

// ns x factor, rounded down.
constexpr int64_t scaled(int64_t ns, int64_t factor) {
  return static_cast<int64_t>((static_cast<__int128>(ns) * factor) >> kFactorBits);
}

// Quantile of the standard normal distribution (Acklam's rational approximation, one step of
// Halley's method): relative error below 1e-14.
double normal_quantile(double u);

// What the simulator is asked: one training, as whole nanoseconds. Ranks are alike but for what
// `schedule` says of them. A plain value but for that function, which is a pure one.

// A bucket as its rank comes to it in backward, in launch order.
struct BucketWork {
  int64_t bucket = 0;
  int64_t bytes = 0;
  int64_t ready_ns = 0;  // from the begin of backward until its last gradient is there
  int64_t extra_ns = 0;  // from then until it is launched, while backward goes on: a hand-off
  // DDP's own work on it, its hooks and copies: backward does it when the last gradient is there,
  // before whatever comes after, and is longer by it. Not in ready_ns.
  int64_t work_ns = 0;
  // With virtual shards: the same of a shard that is not the rank's last of a step.
  int64_t shard_work_ns = 0;
  bool operator==(const BucketWork&) const = default;
};

// What befalls one rank in one step, beyond its noise.
struct RankEvents {
  int64_t compute_factor = kOne;  // forward and backward take so many times as long (2^24: once)
  // Before the phase of that name, in each pass that has it.
  int64_t load_ns = 0, forward_ns = 0, backward_ns = 0, wait_ns = 0, optimizer_ns = 0;
  // The same of what acts once a step: in the first such phase.
  int64_t once_forward_ns = 0, once_backward_ns = 0, once_wait_ns = 0;
  // Backward comes so much later to whatever is ready at or after `ready_ns` without it.
  struct Pause {
    int64_t ready_ns = 0, ns = 0;
    bool of_bucket = false;  // only in a pass whose buckets are communicated
    bool once = false;       // in the first such pass of a step
    bool operator==(const Pause&) const = default;
  };
  std::vector<Pause> pauses;
  // Each collective is held back in the rank's own queue, one after the other: for so long, and
  // for so long a byte that the rank sends.
  int64_t queue_ns = 0;
  int64_t queue_fs_per_byte = 0;
  // From this place of the step on it never does anything any more.
  struct End {
    enum class Place { phase, bucket } place = Place::phase;
    int64_t bucket = -1;                 // before it arrives at it
    Phase phase = Phase::backward;       // at the begin of it
    bool dead = false;                   // its peers notice; else they wait until their deadline
    int32_t signal = 0, exit_code = -1;  // by which it died
    bool operator==(const End&) const = default;
  };
  std::optional<End> end;
  bool operator==(const RankEvents&) const = default;
};

struct Schedule {
  // Ranks of which at() may say something, ascending; all others are as RankEvents{} in every step.
  std::vector<int64_t> touched;
  std::function<RankEvents(int64_t rank, int64_t step)> at;
  // Of each fault how far it holds up each touched rank in a step, fault by fault: whoever is held
  // up by none more than another rank is nowhere later than it, and all leave a step together,
  // unless they leave it apart anyway. Empty: that is not so. Any thread may call it.
  std::function<std::vector<int64_t>(int64_t step)> weigh;
};

// Parameters are averaged after the optimizer (local SGD), in groups of neighbours by rank.
struct Averaging {
  int64_t ranks = 1;  // of a group; the job's: all
  int64_t period = 1;
  int64_t warmup = 0;  // after step warmup + 1 and every period steps from there
  bool operator==(const Averaging&) const = default;
};

// Of reducer invariant: a step's virtual shards, which ranks compute one after the other, from
// shards_of_rank() (reducer/shard_tree.h). In the backward of the last one a bucket is exchanged by
// an all-to-all, of as many times its bytes as the rank that has most has roots, and after that
// backward its parts are gathered. Where is_one_addition(): by an all-reduce.
struct VirtualShards {
  int64_t count = 1;
  int64_t micro_batches = 1;  // of each
  int64_t roots = 1;
  bool operator==(const VirtualShards&) const = default;
};

// Parameters that ranks hold in parts (FSDP2, ZeRO's stage 3). A unit's are gathered before its
// compute, in forward and, where they were let go after it, once more in backward; where a pass is
// due its gradients are reduce-scattered after its backward: Job::settled, a bucket for each unit,
// the last one's first.
struct ParameterShards {
  struct Unit {
    int64_t bytes = 0;  // gathered, as many for each rank
    // When compute comes to it and is done with it, from the begin of forward and of backward.
    int64_t forward_ns = 0, backward_ns = 0, done_ns = 0;
    bool operator==(const Unit&) const = default;
  };
  // In the order of forward. The first is the root's, of what no other has: gathered when forward
  // begins, kept until backward ends, and its gradients are there then.
  std::vector<Unit> units;
  int64_t prefetch = 1;  // units that are asked for while another one is computed
  bool reshard = true;   // let go after forward
  // Neighbours by rank that hold one copy between them (HSDP): units are gathered and
  // reduce-scattered among them, and each part of the sums all-reduced between the ranks of all
  // groups that hold it. 0: all ranks, one copy.
  int64_t shard_ranks = 0;
  bool operator==(const ParameterShards&) const = default;
};

struct Job {
  int64_t ranks = 1;
  int64_t steps = 1;  // numbered from 1
  uint64_t seed = 0;
  int64_t load_ns = 0, forward_ns = 0, backward_ns = 0, optimizer_ns = 0;
  std::vector<BucketWork> first_step;  // before buckets are rebuilt
  std::vector<BucketWork> settled;     // from step 2 on
  // All ranks together, at the begin of the pass after the first one that was communicated; 0:
  // buckets are never rebuilt.
  int64_t rebuild_ns = 0;
  Noise noise;  // of each rank's forward and backward
  Schedule schedule;
  CostModel cost;
  std::vector<LinkCost> links;  // of ring, from each rank to the next; empty: all as cost.link
  int64_t channels = 1;         // collectives that may be under way at once
  // Compute takes so much longer while a collective is under way, in 2^-24 (0: not at all).
  int64_t overlap_slowdown = 0;
  // A bucket's collective takes so much longer while any rank's backward goes on, likewise.
  int64_t comm_slowdown = 0;
  // Forward and backward of a step (micro-batches of gradient accumulation). Buckets are
  // communicated in the last only (no_sync), or in each.
  int64_t passes = 1;
  bool each_pass = false;
  // Then `passes` are those of the rank that has most; others begin with a later one.
  std::optional<VirtualShards> shards;
  std::optional<ParameterShards> parts;
  std::optional<int64_t> local_from;  // from this step on no bucket is communicated
  // Ascending groups, each of whole ones below it: of the levels that are due after a step the
  // largest is averaged (hierarchical SGD).
  std::vector<Averaging> averaging;
  int64_t averaged_bytes = 0;
  int64_t collective_ns = 0;  // time-out of one collective; 0: none
};

inline constexpr int64_t kMostSteps = 10'000'000;
inline constexpr int64_t kMostPasses = 4096;
inline constexpr int64_t kMostBuckets = 100'000;
inline constexpr int64_t kMostRoots = 64;
inline constexpr int64_t kMostPrefetch = 64;

// What is out of range, each with its name, value and range: counts, negative times, bytes, the
// cost model; also buckets that are not in the order in which they become ready, and a run whose
// time would overflow its nanoseconds.
InputErrors problems_of(const Job& job);

// Passes are counted over the whole run, from 1.
inline int64_t step_of_pass(const Job& job, int64_t pass) { return (pass - 1) / job.passes + 1; }
// Is it one that ends in an average of gradients, or would but for local SGD?
bool is_due(const Job& job, int64_t pass);
bool communicates(const Job& job, int64_t pass);
// Those that are communicated in this pass.
const std::vector<BucketWork>& buckets_of(const Job& job, int64_t pass);
// Of a step, from 1: the first one that this rank has.
int64_t first_pass_of(const Job& job, int64_t rank);
// Do some ranks have more passes than others?
bool is_uneven(const Job& job);
// Do they exchange parts of their virtual shards' sums, and gather them afterwards?
bool exchanges_parts(const Job& job);
// What a bucket is brought together by in backward, and the bytes that each rank gives to it.
Operation bucket_operation(const Job& job);
int64_t exchanged_bytes(const Job& job, int64_t bucket_bytes);
// Is there more than one copy of the parameters in parts?
bool has_copies(const Job& job);
// Of parameters in parts those that take part in a unit's collective.
int64_t ranks_in_unit(const Job& job, Operation operation);
// How long it takes, once all of them are in it, of a unit of so many bytes.
int64_t unit_ns(const Job& job, Operation operation, int64_t bytes);
// Of so many bytes what a rank gives to the all-reduce between copies: its part.
int64_t part_bytes(const Job& job, int64_t bytes);
// Have these all-reduces links of their own? Of groups of one host each: they alone go across.
bool copies_have_links(const Job& job);
// The reducer's own work of the pass, by which its backward is longer: of passes that are due, or
// end a virtual shard. In local steps buckets are filled all the same, for a comm hook that sends
// nothing.
int64_t bucket_work_ns(const Job& job, int64_t pass);
// Do ranks wait for the new buckets at its begin?
bool rebuilds(const Job& job, int64_t pass);
// The place in job.averaging of what is averaged after this step.
std::optional<size_t> averaging_after(const Job& job, int64_t step);

}  // namespace lockstep
