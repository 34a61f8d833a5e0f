// Reducer invariant in virtual time: several passes a step, of which ranks may have different
// numbers, an all-to-all of each bucket beside the last backward and a gathering of each after it.
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "reducer/shard_tree.h"
#include "scenarios/parse/suite.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"
#include "tests/sim/des/laws.h"
#include "tests/sim/des/random_job.h"

namespace lockstep {
namespace {

// 4 ranks with two shards each, forward 1 ms, backward 2 ms, two buckets of 4000 bytes; a byte
// takes 1 us, so that an all-to-all of one root and a gathering take 3 ms each.
Job plain_shards() {
  Job job;
  job.ranks = 4;
  job.steps = 3;
  job.forward_ns = 1'000'000;
  job.backward_ns = 2'000'000;
  job.settled = job.first_step = {{0, 4000, 1'000'000, 0}, {1, 4000, 2'000'000, 0}};
  job.cost.link.beta_fs_per_byte = 1'000'000'000;
  job.passes = 2;
  job.shards = VirtualShards{8, 1, 1};
  return job;
}

int64_t step_ns(const Job& job) {
  const auto steps = steps_by(job, cheapest_engine(job));
  EXPECT_EQ(steps, steps_by(job, Engine::rounds));
  EXPECT_EQ(steps, steps_by(job, Engine::closed_form));
  return steps.empty() ? -1 : steps.back().duration_ns;
}

TEST(VirtualShards, AreExchangedBesideTheLastBackwardAndGatheredAfterIt) {
  Job job = plain_shards();
  // The first exchange begins at 5 ms, the second at 8; gathered until 14 and 17.
  EXPECT_EQ(cheapest_engine(job), Engine::classes);
  EXPECT_EQ(step_ns(job), 17'000'000);
  EXPECT_EQ(steps_by(job, Engine::closed_form)[1].exposed_ns, 11'000'000);
  EXPECT_EQ(steps_by(job, Engine::closed_form)[1].comm_ns, 12'000'000);
  job.shards->roots = 2;  // twice the bytes of an exchange, but not of the gathering
  EXPECT_EQ(step_ns(job), 23'000'000);
  job.shards = VirtualShards{4, 2, 1};  // two micro-batches of one shard
  EXPECT_EQ(step_ns(job), 17'000'000);
  job.ranks = 1;
  job.shards = VirtualShards{2, 1, 1};
  EXPECT_EQ(step_ns(job), 6'000'000);
  EXPECT_EQ(why_not(job, Engine::events), "its collective is known by its formula only");
}

// One root each: an all-reduce of each bucket beside the last backward, and nothing after it. Two
// roots of one of them: exchanged, as ever.
TEST(VirtualShards, OfTwoRanksWithOneRootEachAreAllReduced) {
  Job job = plain_shards();
  job.ranks = 2;
  job.shards = VirtualShards{4, 1, 1};
  EXPECT_FALSE(exchanges_parts(job));
  EXPECT_EQ(bucket_operation(job), Operation::all_reduce);
  // Of 4000 bytes 2 x 2 ms: the first begins at 5 ms, the second at 9.
  EXPECT_EQ(step_ns(job), 13'000'000);
  Job bucketed = job;
  bucketed.shards.reset();
  EXPECT_EQ(step_ns(job), step_ns(bucketed));
  EXPECT_EQ(cheapest_engine(job), cheapest_engine(bucketed));
  job.shards->roots = 2;
  EXPECT_TRUE(exchanges_parts(job));
  EXPECT_EQ(bucket_operation(job), Operation::all_to_all);
}

// What a bucket costs the reducer: its filling in every shard, its launch in the last.
TEST(VirtualShards, FillBucketsOncePerShard) {
  Job job = plain_shards();
  job.ranks = 1;
  job.shards = VirtualShards{2, 3, 1};  // three micro-batches a shard
  job.passes = 6;
  for (auto* works : {&job.first_step, &job.settled})
    for (BucketWork& work : *works) {
      work.work_ns = 700;
      work.shard_work_ns = 50;
    }
  EXPECT_EQ(step_ns(job), 6 * 3'000'000 + 2 * 700 + 2 * 50);
}

// 3 shards of 2 ranks: rank 0 computes one, rank 1 two.
TEST(VirtualShards, ARankWithFewerOfThemWaits) {
  Job job = plain_shards();
  job.ranks = 2;
  job.shards = VirtualShards{3, 1, 2};
  ASSERT_EQ(first_pass_of(job, 0), 2);
  ASSERT_EQ(first_pass_of(job, 1), 1);
  EXPECT_EQ(why_not(job, Engine::classes), "ranks have different numbers of virtual shards");
  // An exchange of two roots takes 4 ms, a gathering 2: 5 + 4 + 4 + 2 + 2.
  EXPECT_EQ(step_ns(job), 17'000'000);
  EXPECT_EQ(steps_by(job, Engine::rounds)[1].skew_ns, 3'000'000);
  job.schedule.touched = {0};
  int64_t late_ns = 3'000'000;  // as late as rank 1, which is not felt
  job.schedule.at = [&](int64_t, int64_t) {
    RankEvents events;
    events.once_forward_ns = late_ns;  // in its first pass, which is the step's second
    return events;
  };
  EXPECT_EQ(step_ns(job), 17'000'000);
  late_ns = 3'500'000;
  EXPECT_EQ(step_ns(job), 17'500'000);
}

TEST(VirtualShards, ASlowLinkHoldsUpBothOperations) {
  Job job = plain_shards();
  job.schedule.touched = {2};
  RankEvents late;
  late.queue_ns = 10'000'000;
  job.schedule.at = [&](int64_t, int64_t) { return late; };
  // Four collectives, one after the other in its queue.
  EXPECT_EQ(step_ns(job), 5'000'000 + 4 * 10'000'000 + 3'000'000);
  late.queue_ns = 0;
  late.queue_fs_per_byte = 2'000'000'000;  // 3/4 of 4000 bytes take 6 ms
  EXPECT_EQ(step_ns(job), 5'000'000 + 4 * 6'000'000 + 3'000'000);
}

TEST(VirtualShards, WhoeverDiesBetweenExchangeAndGatheringIsMissedThere) {
  for (const bool dead : {true, false}) {
    Job job = plain_shards();
    job.collective_ns = 50'000'000;
    job.schedule.touched = {1};
    job.schedule.at = [&](int64_t, int64_t step) {
      RankEvents events;
      if (step == 2) events.end = {.phase = Phase::wait, .dead = dead};
      return events;
    };
    const auto run = simulate(job, {Engine::rounds, 1});
    ASSERT_TRUE(run.value().failure);
    const SimulatedFailure& failure = *run.value().failure;
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.step, 2);
    EXPECT_EQ(failure.place, "wait");
    EXPECT_TRUE(failure.gathering);
    // The others have come to it when the first exchange ends.
    EXPECT_EQ(failure.known_ns, 17'000'000 + 8'000'000 + (dead ? 0 : 50'000'000));
  }
}

TEST(VirtualShards, AGatheringThatTakesTooLongTimesOut) {
  Job job = plain_shards();
  job.shards->roots = 1;
  job.collective_ns = 2'500'000;
  job.cost.tables = {{4, {{1, 1'000'000}}, Operation::all_to_all},
                     {4, {{1, 2'600'000}}, Operation::all_gather}};
  job.settled = job.first_step = {{0, 1, 2'000'000, 0}};
  const auto run = simulate(job, {Engine::rounds, 1});
  ASSERT_TRUE(run.value().failure);
  EXPECT_EQ(run.value().failure->cause, EndedBy::short_timeout);
  EXPECT_TRUE(run.value().failure->gathering);
}

// Any number of ranks and shards, noise, faults, channels and contention.
Job random_shards(uint64_t seed) {
  Job job = random_job(seed);
  Rng rng(seed + 99);
  const int64_t count = drawn(rng, job.ranks, 3 * job.ranks);
  job.shards = VirtualShards{count, drawn(rng, 1, 3), most_roots(count, job.ranks)};
  job.passes = (count + job.ranks - 1) / job.ranks * job.shards->micro_batches;
  for (auto* works : {&job.first_step, &job.settled})
    for (BucketWork& work : *works) work.shard_work_ns = work.work_ns / 2;
  return job;
}

TEST(VirtualShards, EnginesGiveTheSameNanoseconds) {
  int64_t by_classes = 0, uneven = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const Job job = random_shards(seed);
    const auto rounds = steps_by(job, Engine::rounds);
    ASSERT_EQ(rounds.size(), static_cast<size_t>(job.steps));
    ASSERT_EQ(rounds, steps_by(job, Engine::closed_form)) << "seed " << seed;
    uneven += is_uneven(job) ? 1 : 0;
    if (!why_not(job, Engine::classes).empty()) continue;
    ++by_classes;
    auto classes = steps_by(job, Engine::classes);
    if (job.noise.per_bucket)
      for (size_t i = 0; i < rounds.size(); ++i) {  // not known of a class
        classes[i].skew_ns = rounds[i].skew_ns;
        classes[i].longest_ns = rounds[i].longest_ns;
      }
    ASSERT_EQ(rounds, classes) << "seed " << seed;
  }
  EXPECT_GT(by_classes, 200);
  EXPECT_GT(uneven, 1000);
}

// (p-1)/p n beta, of all buckets' exchanges and gatherings together; written down again.
int64_t least_shards_ns(const Job& job, const std::vector<BucketWork>& buckets) {
  const CostModel& cost = job.cost;
  const bool told_apart = cost.ranks_per_host > 1 || cost.algorithm == Algorithm::hierarchical;
  const bool hosts = told_apart && job.ranks > cost.ranks_per_host;
  const int64_t link = cost.link.beta_fs_per_byte;
  const int64_t nics = cost.nics_per_host == 0 ? cost.ranks_per_host : cost.nics_per_host;
  const int64_t across = cost.across.beta_fs_per_byte / (cost.stripes ? nics : 1);
  const int64_t fs = hosts ? std::min(link, across) : link;
  int64_t sum = 0;
  for (const BucketWork& bucket : buckets)
    for (const int64_t bytes : {bucket.bytes * job.shards->roots, bucket.bytes})
      sum += static_cast<int64_t>(static_cast<__int128>(bytes) * fs * (job.ranks - 1) / job.ranks /
                                  1'000'000);
  return sum;
}

TEST(VirtualShards, NothingIsFasterThanItsBytesOrItsPasses) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Job job = random_shards(seed);
    job.noise = {};
    job.schedule = {};
    const auto steps = steps_by(job, cheapest_engine(job));
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto& buckets = i == 0 ? job.first_step : job.settled;
      int64_t work_ns = 0;
      for (const BucketWork& bucket : buckets) work_ns += bucket.work_ns;
      ASSERT_GE(steps[i].duration_ns, least_shards_ns(job, buckets)) << "seed " << seed;
      ASSERT_GE(steps[i].duration_ns, job.passes * (job.forward_ns + job.backward_ns) + work_ns)
          << "seed " << seed;
    }
  }
}

Job drawn_shards() {
  Job job = random_shards(static_cast<uint64_t>(in_range(1, 1'000'000)));
  job.noise = {};
  job.schedule = {};
  job.overlap_slowdown = job.comm_slowdown = 0;
  return job;
}

RC_GTEST_PROP(VirtualShardLaws, MoreIsNeverFaster, ()) {
  Job job = drawn_shards();
  int64_t before = total_ns(job);
  const auto expect_no_less = [&] {
    const int64_t after = total_ns(job);
    RC_ASSERT(after >= before);
    before = after;
  };
  for (BucketWork& work : job.settled) work.bytes += in_range(0, 100'000);
  expect_no_less();
  // A second root makes another collective of one addition, which an algorithm may be slower at.
  if (exchanges_parts(job)) job.shards->roots += in_range(0, 2);
  expect_no_less();
  job.cost.link.alpha_ns += in_range(0, 1000);
  job.cost.link.beta_fs_per_byte += in_range(0, 1'000'000);
  job.cost.across.beta_fs_per_byte += in_range(0, 1'000'000);
  job.cost.link.gamma_fs_per_byte += in_range(0, 100'000);
  expect_no_less();
  for (BucketWork& work : job.settled) work.shard_work_ns += in_range(0, 1000);
  expect_no_less();
  const int64_t more = in_range(0, 3);
  job.shards->micro_batches += more;
  job.passes = (job.shards->count + job.ranks - 1) / job.ranks * job.shards->micro_batches;
  expect_no_less();
}

RC_GTEST_PROP(VirtualShardLaws, ALaterRankMakesNobodyEarlier, ()) {
  a_later_rank_makes_nobody_earlier(drawn_shards(), &RankEvents::once_backward_ns, 200'000);
}

RunPlan plan_of(std::vector<std::string> sets) {
  const auto loaded =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/named_compute.json",
                         {.sets = std::move(sets), .seed = {}});
  EXPECT_TRUE(loaded) << to_text(loaded.errors().front());
  const auto plans = make_plans(loaded.value());
  EXPECT_TRUE(plans) << to_text(plans.errors().front());
  return plans.value().front();
}

std::vector<std::string> of_shards(int64_t ranks, int64_t shards) {
  return {"/world_size=" + std::to_string(ranks), "/faults=[]", "/batch_size=24",
          "/reducer/kind=invariant", "/reducer/virtual_shards=" + std::to_string(shards)};
}

TEST(VirtualShards, AreTheScenarios) {
  const RunPlan plan = plan_of(of_shards(3, 8));
  const Job job = job_of_plan(plan, default_machine_model()).value().job;
  EXPECT_EQ(job.shards, (VirtualShards{8, 1, 2}));
  EXPECT_EQ(job.passes, 3);
  EXPECT_EQ(job.rebuild_ns, 0);
  EXPECT_EQ(job.first_step, job.settled);
  ASSERT_GT(job.settled.size(), 1u);
  for (const BucketWork& work : job.settled) EXPECT_EQ(work.bytes % (3 * 4), 0);
  EXPECT_EQ(job.forward_ns, 8'000'000);  // of a shard
}

// Weak scaling: each rank with as many shards as one of the scenario has.
TEST(VirtualShards, GrowWithTheRanks) {
  SimulatedAs as;
  as.ranks = 10;
  const auto grown = job_of_plan(plan_of(of_shards(2, 6)), default_machine_model(), as);
  EXPECT_EQ(grown.value().job.shards, (VirtualShards{30, 1, 2}));
  EXPECT_EQ(grown.value().job.passes, 3);
  const auto uneven = job_of_plan(plan_of(of_shards(3, 8)), default_machine_model(), as);
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.errors()[0].pointer, "/reducer/virtual_shards");
  as.averaging = {{10, 1, 0}};
  const auto average = job_of_plan(plan_of(of_shards(2, 6)), default_machine_model(), as);
  ASSERT_FALSE(average);
  EXPECT_EQ(average.errors()[0].pointer, "/reducer/kind");
}

TEST(VirtualShards, NeedBothOperationsMeasured) {
  MachineModel machine = default_machine_model();
  const RunPlan plan = plan_of(of_shards(2, 6));
  machine.cost.tables = {{2, {{1000, 1}}, Operation::all_reduce}};
  const auto neither = job_of_plan(plan, machine);
  ASSERT_FALSE(neither);
  EXPECT_EQ(neither.errors()[0].message,
            "of all_to_all collectives nothing was measured, but of others");
  machine.cost.tables.push_back({2, {{1000, 1'000'000}}, Operation::all_to_all});
  ASSERT_EQ(job_of_plan(plan, machine).errors().size(), 1u);
  machine.cost.tables.push_back({4, {{1000, 1'000'000}}, Operation::all_gather});
  EXPECT_EQ(job_of_plan(plan, machine).errors()[0].message,
            "all_gather collectives were measured at 4 ranks, not at 2");
  machine.cost.tables.back().ranks = 2;
  EXPECT_TRUE(job_of_plan(plan, machine));
}

// As a real run's (tests/cli/simulate_test.py compares them with one).
TEST(VirtualShards, LeaveTheRecordsOfARealRun) {
  for (const int64_t ranks : {1, 2, 3}) {
    const RunPlan plan = plan_of(of_shards(ranks, 4));
    const PlannedJob planned = job_of_plan(plan, default_machine_model()).value();
    VirtualRecords records(plan, planned);
    const auto run = simulate(planned.job, {}, [&](const StepTrace& t) { records.add(t); });
    const RunOutcome outcome = records.take(run.value());
    const size_t calls = ranks == 1 ? 0 : exchanges_parts(planned.job) ? 2 : 1;
    const size_t each = calls * planned.job.settled.size();
    for (const RankRecords& rank : outcome.ranks) {
      int64_t last_ns = 0, forwards = 0;
      std::vector<uint32_t> sequences;
      for (const Event& event : rank.events) {
        EXPECT_GE(event.time_ns, last_ns) << "rank " << rank.rank;
        last_ns = event.time_ns;
        if (event.kind == static_cast<uint16_t>(EventKind::arrival))
          sequences.push_back(event.sequence);
        if (event.kind == static_cast<uint16_t>(EventKind::phase_begin) &&
            event.phase == static_cast<uint16_t>(Phase::forward))
          ++forwards;
      }
      EXPECT_EQ(forwards, plan.scenario.steps * shards_of_rank(4, ranks, rank.rank).size());
      ASSERT_EQ(sequences.size(), 3 + static_cast<size_t>(plan.scenario.steps) * each);
      for (size_t i = 0; i < sequences.size(); ++i) EXPECT_EQ(sequences[i], i + 1);
    }
  }
}

}  // namespace
}  // namespace lockstep
