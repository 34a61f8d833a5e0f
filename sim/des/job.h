#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/cost.h"
#include "sim/des/noise.h"

namespace lockstep {

// What the simulator is asked: one training, as whole nanoseconds. Ranks are alike but for what
// `schedule` says of them. A plain value but for that function, which is a pure one.

// A bucket as its rank comes to it in backward, in launch order.
struct BucketWork {
  int64_t bucket = 0;
  int64_t bytes = 0;
  int64_t ready_ns = 0;  // from the begin of backward until its last gradient is there
  int64_t extra_ns = 0;  // copy-in and hook, before it is launched
};

// What befalls one rank in one step, beyond its noise.
struct RankEvents {
  int64_t compute_factor = kOne;  // forward and backward take so many times as long (2^24: once)
  // Before the phase of that name.
  int64_t load_ns = 0, forward_ns = 0, backward_ns = 0, wait_ns = 0, optimizer_ns = 0;
  // Backward comes so much later to whatever is ready at or after `ready_ns` without it.
  struct Pause {
    int64_t ready_ns = 0, ns = 0;
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
    std::string phase;                   // at the begin of it
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
};

struct Job {
  int64_t ranks = 1;
  int64_t steps = 1;  // numbered from 1
  uint64_t seed = 0;
  int64_t load_ns = 0, forward_ns = 0, backward_ns = 0, optimizer_ns = 0;
  std::vector<BucketWork> first_step;  // before buckets are rebuilt
  std::vector<BucketWork> settled;     // from step 2 on
  int64_t rebuild_ns = 0;              // at the begin of step 2's forward, all ranks together
  Noise noise;                         // of each rank's forward and backward
  Schedule schedule;
  CostModel cost;
  std::vector<LinkCost> links;  // of ring, from each rank to the next; empty: all as cost.link
  int64_t channels = 1;         // collectives that may be under way at once
  // Compute takes so much longer while a collective is under way, in 2^-24 (0: not at all).
  int64_t overlap_slowdown = 0;
  int64_t sync_every = 1;  // gradients are averaged in every so many-th step (no_sync, local SGD)
  int64_t collective_ns = 0;  // time-out of one collective; 0: none
};

inline constexpr int64_t kMostSteps = 10'000'000;
inline constexpr int64_t kMostBuckets = 100'000;

// What is out of range, each with its name, value and range: counts, negative times, bytes, the
// cost model; also buckets that are not in the order in which they become ready, and a run whose
// time would overflow its nanoseconds.
InputErrors problems_of(const Job& job);

const std::vector<BucketWork>& buckets_of(const Job& job, int64_t step);
bool synchronizes(const Job& job, int64_t step);

// The noise of a rank's compute in a step, and of one bucket of it: factors (kOne: none).
int64_t rank_factor(const Job& job, int64_t step, int64_t rank);
int64_t bucket_factor(const Job& job, int64_t step, int64_t rank, int64_t bucket);

}  // namespace lockstep
