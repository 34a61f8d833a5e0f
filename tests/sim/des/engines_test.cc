#include <gtest/gtest.h>

#include "sim/des/collective.h"
#include "sim/des/simulate.h"
#include "tests/sim/des/laws.h"
#include "tests/sim/des/random_job.h"

namespace lockstep {
namespace {

// Skew per bucket of ranks that are one class is not known from extremes alone.
std::vector<StepNumbers> without_skew(std::vector<StepNumbers> steps) {
  for (StepNumbers& step : steps) step.skew_ns = step.longest_ns = 0;
  return steps;
}

// LOCKSTEP_ENGINE_JOBS: how many; the default takes a second.
int64_t job_count() {
  const char* wanted = std::getenv("LOCKSTEP_ENGINE_JOBS");
  return wanted != nullptr ? std::atoll(wanted) : 5000;
}

TEST(Engines, GiveTheSameNanosecondsWhereMoreThanOneApplies) {
  int64_t by_events = 0, by_classes = 0;
  for (int64_t seed = 1; seed <= job_count(); ++seed) {
    const Job job = random_training(static_cast<uint64_t>(seed));
    const auto rounds = steps_by(job, Engine::rounds);
    ASSERT_EQ(rounds.size(), static_cast<size_t>(job.steps));
    EXPECT_EQ(rounds, steps_by(job, Engine::closed_form)) << "seed " << seed;
    if (why_not(job, Engine::events).empty()) {
      ++by_events;
      EXPECT_EQ(rounds, steps_by(job, Engine::events)) << "seed " << seed;
    }
    if (!why_not(job, Engine::classes).empty()) continue;
    ++by_classes;
    if (job.noise.per_bucket) {
      EXPECT_EQ(without_skew(rounds), without_skew(steps_by(job, Engine::classes)))
          << "seed " << seed;
    } else {
      EXPECT_EQ(rounds, steps_by(job, Engine::classes)) << "seed " << seed;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(by_events, job_count() / 4);
  EXPECT_GT(by_classes, job_count() / 4);
}

// 4 ranks, one bucket of 1 ms, forward 1 ms, backward 2 ms.
Job plain_training() {
  Job job;
  job.ranks = 4;
  job.steps = 4;
  job.forward_ns = 1'000'000;
  job.backward_ns = 2'000'000;
  job.settled = job.first_step = {{0, 4000, 2'000'000, 0}};
  job.averaged_bytes = 4000;
  job.cost.link.beta_fs_per_byte = 1'000'000'000;  // 1 us a byte
  return job;
}

std::vector<int64_t> durations_of(const Job& job) {
  std::vector<int64_t> durations;
  for (const Engine engine : {Engine::events, Engine::classes}) {
    std::vector<int64_t> own;
    for (const StepNumbers& step : steps_by(job, engine)) own.push_back(step.duration_ns);
    if (!durations.empty()) {
      EXPECT_EQ(own, durations);
    }
    durations = own;
  }
  return durations;
}

TEST(Engines, TellEachStep) {
  const Job job = random_training(1);
  std::vector<int64_t> told;
  SimulateOptions options;
  options.progress = [&](int64_t done, int64_t of) {
    EXPECT_EQ(of, job.steps);
    told.push_back(done);
  };
  const auto run = simulate(job, options);
  ASSERT_TRUE(run);
  ASSERT_EQ(told.size(), run.value().steps.size());
  for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], static_cast<int64_t>(i) + 1);
}

TEST(Passes, OnlyTheLastOrEachIsCommunicated) {
  Job job = plain_training();
  const int64_t compute = 3'000'000, comm = 6'000'000;  // 2 (p-1) / p n beta
  EXPECT_EQ(durations_of(job), std::vector<int64_t>(4, compute + comm));
  job.passes = 3;
  EXPECT_EQ(durations_of(job), std::vector<int64_t>(4, 3 * compute + comm));
  job.each_pass = true;
  EXPECT_EQ(durations_of(job), std::vector<int64_t>(4, 3 * (compute + comm)));
  EXPECT_EQ(steps_by(job, Engine::closed_form).front().exposed_ns, 3 * comm);
}

// What DDP does for its buckets is backward's own time, whether anything is sent or not: 35 buckets
// of 300 us make a step 10.5 ms longer, where a launch that is late by 300 us hides behind it.
TEST(Passes, WorkOfTheReducerLengthensBackward) {
  for (const int64_t ranks : {1, 4}) {
    Job job = plain_training();
    job.ranks = ranks;
    job.backward_ns = 70'000'000;
    job.settled.clear();
    for (int64_t b = 0; b < 35; ++b) job.settled.push_back({b, 4, (b + 1) * 2'000'000, 0});
    job.first_step = job.settled;
    const auto duration_ns = [&] { return steps_by(job, Engine::classes)[1].duration_ns; };
    const int64_t before_ns = duration_ns();
    for (BucketWork& bucket : job.settled) bucket.extra_ns = 300'000;
    EXPECT_EQ(duration_ns(), before_ns + 300'000);
    for (BucketWork& bucket : job.settled) std::swap(bucket.extra_ns, bucket.work_ns);
    EXPECT_EQ(duration_ns(), before_ns + 10'500'000);
    EXPECT_EQ(steps_by(job, Engine::rounds), steps_by(job, Engine::classes));
    job.passes = 2;  // the first of them without a bucket
    EXPECT_EQ(duration_ns(), before_ns + 71'000'000 + 10'500'000);
    job.local_from = 1;  // nothing is sent, but the buckets are filled
    EXPECT_EQ(duration_ns(), 2 * 71'000'000 + 10'500'000);
  }
}

// Backward of 10 ms, after 2 of which a collective of 6 ms begins, and at the end another.
TEST(Contention, HoldsBothUp) {
  Job job = plain_training();
  job.forward_ns = 0;
  job.backward_ns = 10'000'000;
  job.settled = job.first_step = {{0, 4000, 2'000'000, 0}, {1, 4000, 10'000'000, 0}};
  const auto duration_ns = [&] { return durations_of(job)[1]; };
  EXPECT_EQ(duration_ns(), 16'000'000);
  job.comm_slowdown = kOne / 4;  // until 2 + 7.5, before backward ends
  EXPECT_EQ(duration_ns(), 16'000'000);
  job.comm_slowdown = kOne;  // beside 8 ms of backward 4 are done, and 2 after it
  EXPECT_EQ(duration_ns(), 18'000'000);
  job.overlap_slowdown = kOne;  // the first ends at 14, backward at 16
  EXPECT_EQ(duration_ns(), 22'000'000);
  job.overlap_slowdown = kOne / 2;  // both at 14
  EXPECT_EQ(duration_ns(), 20'000'000);
}

TEST(Passes, NewBucketsComeAtTheBeginOfTheOneAfterTheFirstThatWasCommunicated) {
  Job job = plain_training();
  job.passes = 2;
  job.rebuild_ns = 500;
  EXPECT_EQ(durations_of(job),
            (std::vector<int64_t>{12'000'000, 12'000'500, 12'000'000, 12'000'000}));
  job.each_pass = true;
  EXPECT_EQ(durations_of(job)[0], 18'000'500);
  EXPECT_EQ(durations_of(job)[1], 18'000'000);
}

TEST(Passes, LocalStepsEndInAnAverageOfParametersOnceAPeriod) {
  Job job = plain_training();
  job.local_from = 2;
  job.averaging = {{4, 2, 1}};  // after steps 2 and 4
  EXPECT_EQ(durations_of(job), (std::vector<int64_t>{9'000'000, 9'000'000, 3'000'000, 9'000'000}));
  EXPECT_EQ(steps_by(job, Engine::rounds)[1].average_ns, 6'000'000);
}

TEST(Passes, OfAHierarchyTheLargestGroupThatIsDueIsAveraged) {
  Job job = plain_training();
  job.local_from = 1;
  job.averaging = {{2, 1, 0}, {4, 2, 0}};  // all after steps 1 and 3, pairs after 2 and 4
  EXPECT_EQ(durations_of(job), (std::vector<int64_t>{9'000'000, 7'000'000, 9'000'000, 7'000'000}));
  // A rank that is late delays its own pair at first, then all.
  job.schedule.touched = {3};
  job.schedule.at = [](int64_t, int64_t step) {
    RankEvents events;
    events.backward_ns = step == 2 ? 1'000'000 : 0;
    return events;
  };
  EXPECT_EQ(why_not(job, Engine::classes), "groups average at different times");
  const auto steps = steps_by(job, Engine::rounds);
  EXPECT_EQ(steps, steps_by(job, Engine::events));
  EXPECT_EQ(steps[1].duration_ns, 8'000'000);
  EXPECT_EQ(steps[1].skew_ns, 1'000'000);
  EXPECT_EQ(steps[2].duration_ns, 9'000'000);
  EXPECT_EQ(steps[2].skew_ns, 1'000'000);
  job.averaging = {{3, 1, 0}};
  const auto refused = simulate(job);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.errors().front().message, "averaging groups of 3 ranks, of 4 in all");
}

TEST(Passes, ADelayIsOfEachMicroBatchAndAStopOfTheFirst) {
  Job job = plain_training();
  job.passes = 2;
  job.schedule.touched = {1};
  RankEvents late;
  late.forward_ns = 100;
  late.once_backward_ns = 7000;
  late.pauses = {{.ready_ns = 5, .ns = 30}, {.ready_ns = 5, .ns = 1, .of_bucket = true}};
  job.schedule.at = [&](int64_t, int64_t) { return late; };
  EXPECT_EQ(durations_of(job), std::vector<int64_t>(4, 12'000'000 + 200 + 7000 + 60 + 1));
}

// A rank that dies while the others only compute is missed where they next meet.
TEST(Passes, WhoeverIsGoneIsMissedInTheNextCollective) {
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    Job job = plain_training();
    job.local_from = 1;
    job.averaging = {{4, 2, 1}};
    job.schedule.touched = {2};
    job.collective_ns = 50'000'000;
    job.schedule.at = [&](int64_t, int64_t step) {
      RankEvents events;
      if (step == 3) events.end = {.phase = phase};
      return events;
    };
    const auto run = simulate(job, {Engine::rounds, 1});
    ASSERT_TRUE(run.value().failure) << to_word(phase);
    const SimulatedFailure& failure = *run.value().failure;
    EXPECT_EQ(failure.rank, 2);
    EXPECT_EQ(failure.step, 4) << to_word(phase);
    EXPECT_TRUE(failure.averaging);
    EXPECT_EQ(failure.bucket, -1);
    // Steps 1 and 3 take 3 ms, 2 takes 9; the others are there 3 ms later.
    EXPECT_EQ(failure.known_ns, 18'000'000 + 50'000'000);
  }
}

TEST(Engines, LinksOfTheirOwnAreTheSameByMessagesAndByRounds) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Job job = random_job(seed);
    Rng rng(seed);
    job.cost.algorithm = drawn(rng, 0, 1) == 0 ? Algorithm::ring : Algorithm::ring_segmented;
    for (int64_t r = 0; r < job.ranks; ++r)
      job.links.push_back({drawn(rng, 0, 900), drawn(rng, 0, 3'000'000), 0});
    if (job.cost.algorithm == Algorithm::ring_segmented) {
      EXPECT_FALSE(simulate(job));
      job.cost.algorithm = Algorithm::ring;
    }
    if (job.ranks == 1) continue;
    EXPECT_EQ(steps_by(job, Engine::rounds), steps_by(job, Engine::events)) << "seed " << seed;
  }
}

TEST(Engines, AnyNumberOfThreadsGivesTheSame) {
  Job job = random_job(3);
  job.steps = 700;
  job.ranks = 1000;
  job.schedule = {};
  for (const bool per_bucket : {false, true}) {
    job.noise = {Distribution::lognormal, 0.2, per_bucket};
    const auto alone = steps_by(job, Engine::classes, 1);
    for (const int64_t threads : {2, 3, 7})
      EXPECT_EQ(alone, steps_by(job, Engine::classes, threads));
  }
}

// 2(p-1)c after the last start, whatever the others did.
TEST(Engines, ARingOfEqualLinksEndsTogether) {
  Rng rng(5);
  for (int64_t trial = 0; trial < 500; ++trial) {
    Job job;
    job.ranks = drawn(rng, 2, 12);
    job.cost.link = {drawn(rng, 0, 100), drawn(rng, 0, 5'000'000), drawn(rng, 0, 400'000)};
    std::vector<int64_t> starts;
    for (int64_t r = 0; r < job.ranks; ++r) starts.push_back(drawn(rng, 0, 100'000));
    const int64_t bytes = drawn(rng, 0, 100'000);
    const int64_t round = ring_round_ns(job.cost, job.cost.link, bytes, job.ranks);
    const int64_t end =
        *std::max_element(starts.begin(), starts.end()) + 2 * (job.ranks - 1) * round;
    EXPECT_EQ(ends_by_rounds(job, starts, bytes), std::vector<int64_t>(starts.size(), end));
    EXPECT_EQ(ends_by_events(job, starts, bytes, nullptr),
              std::vector<int64_t>(starts.size(), end));
  }
}

TEST(Engines, ARingOfUnequalLinksEndsByItsSlowest) {
  Rng rng(6);
  for (int64_t trial = 0; trial < 500; ++trial) {
    Job job;
    job.ranks = drawn(rng, 2, 12);
    int64_t slowest = 0;
    std::vector<int64_t> starts;
    for (int64_t r = 0; r < job.ranks; ++r) {
      job.links.push_back({drawn(rng, 0, 100), drawn(rng, 0, 5'000'000), 0});
      slowest = std::max(slowest, ring_round_ns(job.cost, job.links.back(), 5000, job.ranks));
      starts.push_back(drawn(rng, 0, 100'000));
    }
    const int64_t bound =
        *std::max_element(starts.begin(), starts.end()) + 2 * (job.ranks - 1) * slowest;
    for (const int64_t end : ends_by_rounds(job, starts, 5000)) EXPECT_LE(end, bound);
  }
}

TEST(Engines, ProgressCountsWhatHasArrived) {
  Job job;
  job.ranks = 4;
  job.cost.link = {10, 0, 0};
  const std::vector<int64_t> starts = {0, 0, 0, 1'000'000};
  const MessageProgress halted = progress_at(job, starts, 400, 999);
  EXPECT_EQ(halted.of, 6);
  // Rank 3 has sent nothing, so rank 0 got nothing; who is further from it got more.
  EXPECT_EQ(halted.got, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(progress_at(job, starts, 400, 2'000'000).got, std::vector<int64_t>(4, 6));
}

// A rank that waits a second with probability p makes nearly every step of many ranks as long.
TEST(Engines, OrderStatisticsAreWithinTheirSamplingError) {
  Job job;
  job.ranks = 1000;
  job.steps = 4000;
  job.forward_ns = 1'000'000;
  job.backward_ns = 2'000'000;
  job.settled = job.first_step = {{0, 1000, 2'000'000, 0}};
  job.cost.link = {1000, 0, 0};
  for (const Distribution distribution :
       {Distribution::normal, Distribution::lognormal, Distribution::exponential}) {
    job.noise = {distribution, 0.05, false};
    const auto mean = [&](Engine engine, double* deviation) {
      double sum = 0, squares = 0;
      const auto steps = steps_by(job, engine);
      for (const StepNumbers& step : steps) {
        const auto ns = static_cast<double>(step.duration_ns);
        sum += ns;
        squares += ns * ns;
      }
      const auto n = static_cast<double>(steps.size());
      *deviation = std::sqrt((squares / n - sum / n * (sum / n)) / n);
      return sum / n;
    };
    double exact_error = 0, drawn_error = 0;
    const double exact = mean(Engine::classes, &exact_error);
    const double by_statistics = mean(Engine::order_statistics, &drawn_error);
    EXPECT_NEAR(exact, by_statistics, 4 * std::hypot(exact_error, drawn_error));
  }
}

TEST(Engines, WhatIsNotExactIsRefused) {
  Job job = random_job(9);
  job.ranks = 3;
  job.cost = {};
  job.links = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}};
  EXPECT_EQ(cheapest_engine(job), Engine::rounds);
  const auto refused = simulate(job, {Engine::closed_form, 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.errors().front().message,
            "engine L2 is not exact here: ranks have links of their own");
}

}  // namespace
}  // namespace lockstep
