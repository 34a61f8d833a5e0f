// Laws that hold for every job. RC_PARAMS=max_success=150000 makes a million of all together.
#include "tests/sim/des/laws.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/des/simulate.h"

namespace lockstep {
namespace {

// Powers of two are where all algorithms take their plain course.
Job drawn_job() {
  Job job;
  job.ranks = int64_t{1} << in_range(0, 6);
  job.steps = 3;
  job.forward_ns = in_range(0, 1'000'000);
  job.backward_ns = in_range(1, 5'000'000);
  job.optimizer_ns = in_range(0, 1000);
  job.cost.algorithm = static_cast<Algorithm>(in_range(0, 5));
  job.cost.link = {in_range(0, 50'000), in_range(0, 5'000'000), in_range(0, 500'000)};
  job.cost.overhead_ns = in_range(0, 1000);
  int64_t ready_ns = 0;
  for (int64_t b = 0; b < in_range(1, 5); ++b) {
    ready_ns = in_range(ready_ns, job.backward_ns);
    job.settled.push_back({b, in_range(0, 1'000'000), ready_ns, 0, in_range(0, 100'000)});
  }
  job.settled.back().ready_ns = job.backward_ns;
  job.first_step = job.settled;
  return job;
}

RC_GTEST_PROP(Laws, MoreBytesAreNeverFaster, ()) {
  Job job = drawn_job();
  const int64_t before = total_ns(job);
  for (BucketWork& bucket : job.settled) bucket.bytes += in_range(0, 100'000);
  job.first_step = job.settled;
  RC_ASSERT(total_ns(job) >= before);
}

RC_GTEST_PROP(Laws, MoreLatencyOrLessBandwidthIsNeverFaster, ()) {
  Job job = drawn_job();
  const int64_t before = total_ns(job);
  job.cost.link.alpha_ns += in_range(0, 10'000);
  job.cost.link.beta_fs_per_byte += in_range(0, 1'000'000);
  job.cost.link.gamma_fs_per_byte += in_range(0, 1'000'000);
  RC_ASSERT(total_ns(job) >= before);
}

// A round's time is rounded up to a nanosecond, so more rounds of smaller parts may lose one each.
RC_GTEST_PROP(Laws, MoreRanksAreNeverFaster, ()) {
  Job job = drawn_job();
  const int64_t before = total_ns(job);
  job.ranks *= 2;
  const auto buckets = static_cast<int64_t>(job.settled.size());
  RC_ASSERT(total_ns(job) + job.steps * buckets * 2 * job.ranks >= before);
}

RC_GTEST_PROP(Laws, NothingIsFasterThanItsBounds, ()) {
  const Job job = drawn_job();
  int64_t wire_ns = 0, work_ns = 0;
  for (const BucketWork& bucket : job.settled) {
    wire_ns += least_all_reduce_ns(job.cost, bucket.bytes, job.ranks);
    work_ns += bucket.work_ns;
  }
  const auto run = simulate(job, {{}, 1});
  for (const StepNumbers& step : run.value().steps) {
    RC_ASSERT(step.duration_ns >= job.forward_ns + job.backward_ns + work_ns + job.optimizer_ns);
    RC_ASSERT(step.duration_ns >= wire_ns);
  }
}

RC_GTEST_PROP(Laws, ALaterRankMakesNobodyEarlier, ()) {
  a_later_rank_makes_nobody_earlier(drawn_job(), &RankEvents::backward_ns, 2'000'000);
}

// Fewer collectives of gradients are never slower: not in each pass, not in local steps.
RC_GTEST_PROP(Laws, LessSynchronizationIsNeverSlower, ()) {
  Job job = drawn_job();
  job.passes = in_range(1, 4);
  job.each_pass = true;
  const int64_t each = total_ns(job);
  job.each_pass = false;
  const int64_t last = total_ns(job);
  RC_ASSERT(last <= each);
  job.local_from = in_range(1, job.steps);
  RC_ASSERT(total_ns(job) <= last);
}

// A longer period is never slower; a step with an average of parameters takes one all-reduce more.
RC_GTEST_PROP(Laws, RarerAveragesAreNeverSlower, ()) {
  Job job = drawn_job();
  job.local_from = 1;
  job.averaged_bytes = in_range(0, 1'000'000);
  const int64_t without = total_ns(job);
  job.averaging = {{job.ranks, 1, 0}};
  const int64_t each = total_ns(job);
  RC_ASSERT(each == without + job.steps * all_reduce_ns(job.cost, job.averaged_bytes, job.ranks));
  job.averaging = {{job.ranks, in_range(1, 3), 0}};
  const int64_t rarer = total_ns(job);
  RC_ASSERT(rarer >= without && rarer <= each);
  // Smaller groups between them, and of equal cost or less.
  job.averaging.insert(job.averaging.begin(), {int64_t{1} << in_range(0, 1), 1, 0});
  RC_PRE(job.averaging[0].ranks <= job.ranks);
  RC_ASSERT(total_ns(job) >= rarer);
}

// DDP's own work is never for nothing, and costs a step no more than it takes.
RC_GTEST_PROP(Laws, MoreWorkOfTheReducerIsNeverFaster, ()) {
  Job job = drawn_job();
  const int64_t before = total_ns(job);
  int64_t more_ns = 0;
  for (BucketWork& bucket : job.settled) {
    const int64_t one_ns = in_range(0, 100'000);
    bucket.work_ns += one_ns;
    more_ns += one_ns;
  }
  job.first_step = job.settled;
  const int64_t after = total_ns(job);
  RC_ASSERT(after >= before);
  RC_ASSERT(after <= before + job.steps * more_ns);
}

RC_GTEST_PROP(Laws, MoreChannelsAreNeverSlower, ()) {
  Job job = drawn_job();
  const int64_t before = total_ns(job);
  job.channels = in_range(1, 8);
  RC_ASSERT(total_ns(job) <= before);
}

// Both ways at once: neither makes a step faster, nor more of it.
RC_GTEST_PROP(Laws, MoreContentionIsNeverFaster, ()) {
  Job job = drawn_job();
  job.channels = in_range(1, 4);
  const int64_t without = total_ns(job);
  job.overlap_slowdown = in_range(0, 2 * kOne);
  job.comm_slowdown = in_range(0, 2 * kOne);
  const int64_t some = total_ns(job);
  RC_ASSERT(some >= without);
  // What is lost is rounded once a collective.
  const int64_t rounded = job.steps * static_cast<int64_t>(job.settled.size()) * 2;
  job.comm_slowdown += in_range(0, kOne);
  const int64_t more = total_ns(job);
  RC_ASSERT(more + rounded >= some);
  job.overlap_slowdown += in_range(0, kOne);
  RC_ASSERT(total_ns(job) + rounded >= more);
}

// At most so many times as slow as what is slowed.
RC_GTEST_PROP(Laws, ContentionCostsNoMoreThanItsPart, ()) {
  Job job = drawn_job();
  const int64_t before = total_ns(job);
  job.comm_slowdown = in_range(0, 2 * kOne);
  RC_ASSERT(total_ns(job) <= scaled(before, kOne + job.comm_slowdown) + job.steps * 8);
}

RC_GTEST_PROP(Laws, SlowerComputeUnderCommunicationIsNeverFaster, ()) {
  Job job = drawn_job();
  const int64_t before = total_ns(job);
  job.overlap_slowdown = in_range(0, kOne / 4);
  RC_ASSERT(total_ns(job) >= before);
}

}  // namespace
}  // namespace lockstep
