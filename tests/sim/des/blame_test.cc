// Who is to blame for a run that ended, by every engine that is exact for it.
#include <gtest/gtest.h>

#include "sim/des/simulate.h"
#include "tests/sim/des/random_job.h"

namespace lockstep {
namespace {

// Some ranks end in some step, and time-outs are short enough to pass now and then.
Job random_failing_job(uint64_t seed) {
  Job job = random_training(seed);
  Rng rng(seed + 991);
  job.collective_ns = drawn(rng, 1, 400'000);
  if (job.ranks < 2 || drawn(rng, 0, 2) > 0) return job;
  const int64_t victim = drawn(rng, 0, job.ranks - 1), when = drawn(rng, 1, job.steps);
  const bool dead = drawn(rng, 0, 1) == 0, in_bucket = drawn(rng, 0, 1) == 0;
  job.schedule.touched = {victim};
  job.schedule.at = [=](int64_t rank, int64_t step) {
    RankEvents events = random_step(seed * 1000 + static_cast<uint64_t>(rank * 10 + step));
    if (step != when) return events;
    RankEvents::End end;
    end.dead = dead;
    if (in_bucket) end.place = RankEvents::End::Place::bucket;
    if (in_bucket) end.bucket = 0;
    events.end = end;
    return events;
  };
  return job;
}

TEST(Blame, IsTheSameByEveryEngine) {
  int64_t failures = 0, of_nobody = 0, of_late_ones = 0, by_classes = 0;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    const Job job = random_failing_job(seed);
    const auto expected = simulate(job, {Engine::rounds, 1});
    ASSERT_TRUE(expected) << to_text(expected.errors().front());
    const auto& failure = expected.value().failure;
    if (failure) {
      ++failures;
      of_nobody += failure->cause == EndedBy::short_timeout;
      of_late_ones += failure->cause == EndedBy::lateness;
    }
    for (const Engine engine : {Engine::events, Engine::closed_form, Engine::classes}) {
      if (!why_not(job, engine).empty()) continue;
      by_classes += failure && engine == Engine::classes;
      const auto run = simulate(job, {engine, 1});
      ASSERT_EQ(run.value().failure, failure) << "seed " << seed << ", " << to_word(engine);
      ASSERT_EQ(run.value().steps.size(), expected.value().steps.size()) << "seed " << seed;
    }
  }
  EXPECT_GT(failures, 1000);
  EXPECT_GT(of_nobody, 100);
  EXPECT_GT(of_late_ones, 100);
  EXPECT_GT(by_classes, 300);
}

Job many_ranks() {
  Job job;
  job.ranks = 10'000;
  job.steps = 3;
  job.seed = 7;
  job.forward_ns = 50'000'000;
  job.backward_ns = 100'000'000;
  job.settled = {{0, 100'000'000, 60'000'000, 0}, {1, 50'000'000, 100'000'000, 0}};
  job.first_step = job.settled;
  job.cost.link = {5'000, fs_per_byte_of(10'000), 0};
  job.noise = {Distribution::normal, 0.02, false};
  return job;
}

// The collective of 10,000 ranks takes 120 ms; they come within 20 of each other.
TEST(Blame, IsNobodysWhereTheTimeOutIsTooShort) {
  for (const bool per_bucket : {false, true}) {
    Job job = many_ranks();
    job.noise.per_bucket = per_bucket;
    job.collective_ns = 90'000'000;
    for (const Engine engine : {Engine::closed_form, Engine::classes}) {
      const auto run = simulate(job, {engine, 2});
      ASSERT_TRUE(run.value().failure) << to_word(engine);
      const SimulatedFailure& failure = *run.value().failure;
      EXPECT_EQ(failure.cause, EndedBy::short_timeout);
      EXPECT_FALSE(failure.rank);
      EXPECT_EQ(failure.step, 1);
      EXPECT_GT(failure.transfer_ns, failure.timeout_ns);
      EXPECT_LT(failure.apart_ns, 50'000'000);
    }
  }
}

// A rank of which nothing is known but its noise comes too late: by name, whichever engine.
TEST(Blame, OfOneAmongManyAlikeRanksNamesIt) {
  Job job = many_ranks();
  job.cost.link = {1, 1, 0};
  job.noise = {Distribution::exponential, 0.3, false};
  job.collective_ns = 200'000'000;
  const auto each = simulate(job, {Engine::closed_form, 2}).value().failure;
  ASSERT_TRUE(each);
  EXPECT_EQ(each->cause, EndedBy::lateness);
  EXPECT_EQ(simulate(job, {Engine::classes, 2}).value().failure, each);
  const auto drawn = simulate(job, {Engine::order_statistics, 1}).value().failure;
  ASSERT_TRUE(drawn);
  EXPECT_FALSE(drawn->rank);  // a distribution has no names
}

// All are held back alike: no rank is the late one.
TEST(Blame, IsNobodysWhereAllAreHeldBackInTheirQueues) {
  Job job = many_ranks();
  job.ranks = 4;
  job.noise = {};
  job.collective_ns = 400'000'000;
  job.schedule.touched = {0, 1, 2, 3};
  job.schedule.at = [](int64_t, int64_t) {
    RankEvents events;
    events.queue_ns = 20'000'000'000;
    return events;
  };
  EXPECT_EQ(simulate(job).value().failure->cause, EndedBy::short_timeout);
  job.schedule.touched = {2};
  const auto one = simulate(job).value().failure;
  EXPECT_EQ(one->cause, EndedBy::lateness);
  EXPECT_EQ(one->rank, 2);
}

}  // namespace
}  // namespace lockstep
