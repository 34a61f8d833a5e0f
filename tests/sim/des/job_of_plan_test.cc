#include <gmock/gmock.h>

#include "scenarios/parse/suite.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

RunPlan plan_of(const std::string& file, std::vector<std::string> sets) {
  const auto loaded = load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/" + file,
                                         {.sets = std::move(sets), .seed = {}});
  EXPECT_TRUE(loaded) << to_text(loaded.errors().front());
  return make_plans(loaded.value()).value().front();
}

RunPlan named_compute(const std::string& faults) {
  return plan_of("stragglers/named_compute.json",
                 {"/world_size=3", "/reducer/kind=bucketed", "/faults=" + faults});
}

PlannedJob job_of(const RunPlan& plan) {
  const auto planned = job_of_plan(plan, default_machine_model());
  EXPECT_TRUE(planned) << to_text(planned.errors().front());
  return planned.value();
}

TEST(JobOfPlan, HasTheBucketsAndTimesOfTheScenario) {
  const PlannedJob planned = job_of(named_compute("[]"));
  EXPECT_EQ(planned.job.ranks, 3);
  EXPECT_EQ(planned.job.forward_ns, 8'000'000);
  EXPECT_EQ(planned.job.backward_ns, 16'000'000);
  EXPECT_EQ(planned.job.first_step.size(), 1u);  // one bucket until they are rebuilt
  EXPECT_GT(planned.job.settled.size(), 1u);
  EXPECT_EQ(planned.job.settled.back().ready_ns, 16'000'000);
  EXPECT_TRUE(planned.job.schedule.touched.empty());
}

// As parameters that are frozen: they are in no bucket, neither at first nor when these are
// rebuilt.
TEST(JobOfPlan, IgnoredParametersAreNeverReduced) {
  const auto bytes_of = [](const std::vector<BucketWork>& works) {
    int64_t bytes = 0;
    for (const BucketWork& work : works) bytes += work.bytes;
    return bytes;
  };
  const std::string file = "stragglers/emulated_resnet50.json";
  const Job all = job_of(plan_of(file, {})).job;
  const Job ignoring = job_of(plan_of(file, {R"(/ignored=["fc.weight"])"})).job;
  EXPECT_EQ(bytes_of(all.settled) - bytes_of(ignoring.settled), 2048 * 1000 * 4);
  EXPECT_EQ(bytes_of(ignoring.settled), bytes_of(ignoring.first_step));
}

TEST(JobOfPlan, FaultsAreWhatBefallsRanks) {
  const PlannedJob planned = job_of(named_compute(
      R"([{"kind": "slow", "rank": 1, "factor": 1.5}, {"kind": "stall", "rank": 2, "step": 3,
          "phase": "forward", "duration_ms": 7}, {"kind": "latency", "rank": 2, "duration_ms": 2}])"));
  EXPECT_THAT(planned.job.schedule.touched, testing::ElementsAre(1, 2));
  EXPECT_EQ(planned.job.schedule.at(1, 2).compute_factor, kOne * 3 / 2);
  EXPECT_EQ(planned.job.schedule.at(2, 3).forward_ns, 7'000'000);
  EXPECT_EQ(planned.job.schedule.at(2, 2).forward_ns, 0);
  EXPECT_EQ(planned.job.schedule.at(2, 2).queue_ns, 2'000'000);
}

RunPlan local_sgd(const std::string& reducer) {
  return plan_of("training/post_local_sgd.json",
                 {"/reducer/kind=" + reducer, "/reducer/gradient_as_bucket_view=false",
                  R"(/compute={"kind": "emulated", "forward_ms": 1})", "/lanes=[\"replica\"]"});
}

TEST(JobOfPlan, MicroBatchesAndLocalStepsAreTheScenarios) {
  const RunPlan accumulates =
      plan_of("stragglers/named_compute.json",
              {"/world_size=3", "/reducer/kind=bucketed", "/accumulate_steps=2"});
  EXPECT_EQ(job_of(accumulates).job.passes, 2);
  EXPECT_FALSE(job_of(accumulates).job.each_pass);
  const PlannedJob local = job_of(local_sgd("bucketed"));
  EXPECT_EQ(local.job.local_from, 3);
  EXPECT_EQ(local.job.averaging, (std::vector<Averaging>{{3, 3, 2}}));
  int64_t bytes = 0;
  for (const BucketWork& bucket : local.job.settled) bytes += bucket.bytes;
  EXPECT_EQ(local.job.averaged_bytes, bytes);
  SimulatedAs as;
  as.ranks = 12;
  as.averaging = {{3, 2, 0}, {12, 6, 0}};
  const auto levels = job_of_plan(local_sgd("bucketed"), default_machine_model(), as);
  EXPECT_EQ(levels.value().job.averaging, (std::vector<Averaging>{{3, 2, 0}, {12, 6, 0}}));
}

TEST(JobOfPlan, TheReducerCostsABucketAParameterAndAByte) {
  const RunPlan plan = named_compute("[]");
  const Job before = job_of(plan).job;
  MachineModel machine = default_machine_model();
  machine.bucket_ns = 300'000;
  machine.parameter_ns = 20'000;
  machine.copy_fs_per_byte = fs_per_byte_of(1000);
  machine.launch_ns = 5000;
  const PlannedJob planned = job_of_plan(plan, machine).value();
  ASSERT_GT(planned.settled.size(), 1u);
  for (size_t b = 0; b < planned.settled.size(); ++b) {
    const BucketWork& bucket = planned.job.settled[b];
    EXPECT_EQ(bucket.work_ns, 300'000 + 20'000 * int64_t(planned.settled[b].size()) + bucket.bytes);
    EXPECT_EQ(bucket.extra_ns, 5000);
    EXPECT_EQ(bucket.ready_ns, before.settled[b].ready_ns);
  }
}

TEST(JobOfPlan, HalfPrecisionSendsHalfOfTheBytes) {
  const auto bytes = [](const std::string& hook) {
    return job_of(plan_of("stragglers/named_compute.json",
                          {"/world_size=3", "/reducer/kind=bucketed",
                           "/comm_hook={\"kind\": \"" + hook + "\"}"}))
        .job.first_step[0]
        .bytes;
  };
  EXPECT_EQ(bytes("fp16") * 2, bytes("none"));
}

TEST(JobOfPlan, WhatCannotBeSimulatedIsRefusedWithItsPlace) {
  const RunPlan real = plan_of("equivalence/toy_model.json", {});
  const auto unknown = job_of_plan(real, default_machine_model());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.errors()[0].pointer, "/compute");
  const RunPlan partition = named_compute(R"([{"kind": "partition", "ranks": [0], "step": 2}])");
  const auto refused = job_of_plan(partition, default_machine_model());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.errors()[0].message, "fault \"partition\" cannot be simulated");
  const auto hook = job_of_plan(
      plan_of("stragglers/named_compute.json",
              {"/world_size=3", "/reducer/kind=bucketed", "/comm_hook={\"kind\": \"powersgd\"}"}),
      default_machine_model());
  ASSERT_FALSE(hook);
  EXPECT_EQ(hook.errors()[0].message, "comm hook \"powersgd\" cannot be simulated");
  SimulatedAs as;
  as.ranks = 2'000'000;
  const auto many = job_of_plan(named_compute("[]"), default_machine_model(), as);
  ASSERT_FALSE(many);
  EXPECT_EQ(to_text(many.errors()[0]), "lockstep: error: ranks is 2000000; expected 1 to 1000000");
}

// Who entered which collective, in which order: as a real run's records
// (tests/cli/simulate_test.py compares them with one).
TEST(VirtualRecords, HaveTheShapeOfRealOnes) {
  const RunPlan plan = named_compute("[]");
  const PlannedJob planned = job_of(plan);
  VirtualRecords records(plan, planned);
  const auto run = simulate(planned.job, {}, [&](const StepTrace& trace) { records.add(trace); });
  const RunOutcome outcome = records.take(run.value());
  ASSERT_EQ(outcome.ranks.size(), 3u);
  for (const RankRecords& rank : outcome.ranks) {
    std::vector<uint32_t> sequences;
    int64_t last_ns = 0;
    for (const Event& event : rank.events) {
      EXPECT_GE(event.time_ns, last_ns) << "rank " << rank.rank;
      last_ns = event.time_ns;
      if (event.kind == static_cast<uint16_t>(EventKind::arrival))
        sequences.push_back(event.sequence);
    }
    // Three of construction, a bucket, the new buckets, then those of every step.
    ASSERT_EQ(sequences.size(), 5 + 19 * planned.job.settled.size());
    for (size_t i = 0; i < sequences.size(); ++i) EXPECT_EQ(sequences[i], i + 1);
  }
}

// Of steps 1 to 7, the last 5 of them without buckets; parameters are averaged after 3 and 6.
TEST(VirtualRecords, AveragesAreCollectivesOfTheOptimizer) {
  for (const char* reducer : {"bucketed", "c10d"}) {
    const RunPlan plan = local_sgd(reducer);
    const PlannedJob planned = job_of(plan);
    VirtualRecords records(plan, planned);
    const auto run = simulate(planned.job, {}, [&](const StepTrace& trace) { records.add(trace); });
    const RunOutcome outcome = records.take(run.value());
    std::vector<int32_t> steps;
    for (const Event& event : outcome.ranks[1].events)
      if (event.kind == static_cast<uint16_t>(EventKind::arrival) &&
          event.phase == static_cast<uint16_t>(Phase::optimizer))
        steps.push_back(event.step);
    EXPECT_THAT(steps, testing::ElementsAre(3, 6)) << reducer;
  }
}

TEST(VirtualRecords, TellWhoEndedARun) {
  const RunPlan plan = named_compute(R"([{"kind": "kill", "rank": 2, "step": 4, "bucket": 1}])");
  const PlannedJob planned = job_of(plan);
  VirtualRecords records(plan, planned);
  const auto run = simulate(planned.job, {}, [&](const StepTrace& trace) { records.add(trace); });
  ASSERT_TRUE(run.value().failure);
  EXPECT_EQ(run.value().failure->rank, 2);
  EXPECT_EQ(run.value().failure->bucket, 1);
  EXPECT_EQ(run.value().failure->cause, EndedBy::death);
  const RunOutcome outcome = records.take(run.value());
  EXPECT_EQ(outcome.ends.front().rank, 2);
  EXPECT_EQ(outcome.ends.front().signal, 9);
  EXPECT_GT(outcome.failed_ns, 0);
}

}  // namespace

}  // namespace lockstep
