#include "sim/des/fronts.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "scenarios/parse/suite.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/simulate.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(Fronts, AreThoseThatNobodyExceedsAndThatExceedNobody) {
  // Ranks 0 to 5 by two faults: (1, 5), (5, 1), (3, 3), (0, 0), (2, 2), (5, 1) again.
  EXPECT_THAT(extremes({1, 5, 3, 0, 2, 5, 5, 1, 3, 0, 2, 1}, 6), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(extremes({0, 0, 0, 7, 0}, 5), ElementsAre(0, 3));
  EXPECT_THAT(extremes({4, 4}, 2), ElementsAre(0));
}

// 200 ranks, each of them touched by every fault.
PlannedJob job_of(const std::string& faults, const std::string& more = "/seed=1") {
  const auto loaded =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/named_compute.json",
                         {.sets = {"/world_size=3", "/reducer/kind=bucketed", "/faults=" + faults,
                                   R"(/expect={"verdict": "pass"})", more},
                          .seed = {}});
  EXPECT_TRUE(loaded) << to_text(loaded.errors().front());
  SimulatedAs as;
  as.ranks = 200;
  as.steps = 20;
  const auto plans = make_plans(loaded.value());
  EXPECT_TRUE(plans) << to_text(plans.errors().front());
  const auto planned = job_of_plan(plans.value().front(), default_machine_model(), as);
  EXPECT_TRUE(planned) << to_text(planned.errors().front());
  return planned.value();
}

SimulatedRun simulated(const Job& job, Engine engine) {
  const auto run = simulate(job, {.engine = engine});
  EXPECT_TRUE(run) << to_text(run.errors().front());
  return run.value();
}

const std::vector<std::string> kFaults = {
    R"({"kind": "latency", "duration_ms": 2})",
    R"({"kind": "jitter", "duration_ms": 2, "distribution": "lognormal", "spread": 0.8})",
    R"({"kind": "slow_link", "bandwidth_mb_per_s": 5})",
    R"({"kind": "stall", "phase": "forward", "duration_ms": 3, "probability": 0.05})",
    R"({"kind": "stall", "phase": "backward", "duration_ms": 3, "distribution": "pareto", "spread": 1.5, "probability": 0.3})",
    R"({"kind": "wandering", "factor": 3, "every_steps": 2})",
    R"({"kind": "slow", "factor": 1.5})",
    R"({"kind": "slow_layer", "layer": "fc2", "duration_ms": 4, "distribution": "uniform", "spread": 0.5})",
    R"({"kind": "slow_loader", "duration_ms": 3, "probability": 0.1})",
    R"({"kind": "periodic_pause", "duration_ms": 5, "every_steps": 3})",
};

void expect_equal(const SimulatedRun& few, const SimulatedRun& all) {
  ASSERT_EQ(few.steps.size(), all.steps.size());
  for (size_t i = 0; i < few.steps.size(); ++i) {
    EXPECT_EQ(few.steps[i].duration_ns, all.steps[i].duration_ns) << i;
    EXPECT_EQ(few.steps[i].compute_ns, all.steps[i].compute_ns) << i;
    EXPECT_EQ(few.steps[i].exposed_ns, all.steps[i].exposed_ns) << i;
    EXPECT_EQ(few.steps[i].comm_ns, all.steps[i].comm_ns) << i;
    EXPECT_EQ(few.steps[i].skew_ns, all.steps[i].skew_ns) << i;
    EXPECT_EQ(few.steps[i].longest_ns, all.steps[i].longest_ns) << i;
  }
  ASSERT_EQ(few.failure.has_value(), all.failure.has_value());
  if (!few.failure) return;
  EXPECT_EQ(few.failure->rank, all.failure->rank);
  EXPECT_EQ(few.failure->step, all.failure->step);
  EXPECT_EQ(few.failure->known_ns, all.failure->known_ns);
  EXPECT_EQ(few.failure->place, all.failure->place);
}

TEST(Fronts, GiveTheNanosecondsOfAllRanks) {
  for (size_t i = 0; i < kFaults.size(); ++i)
    for (size_t j = i; j < kFaults.size(); ++j) {
      const Job job = job_of("[" + kFaults[i] + (i == j ? "" : ", " + kFaults[j]) + "]").job;
      SCOPED_TRACE(kFaults[i] + " " + kFaults[j]);
      ASSERT_TRUE(has_fronts(job));
      expect_equal(simulated(job, Engine::classes), simulated(job, Engine::closed_form));
    }
}

TEST(Fronts, GiveThemWithNoiseAsWell) {
  for (const char* noise : {"normal:0.1", "exponential:0.5"})
    for (const std::string& fault : kFaults) {
      Job job = job_of("[" + fault + ", " + kFaults[1] + "]").job;
      SCOPED_TRACE(fault + " " + noise);
      job.noise = noise_of(noise).value();
      ASSERT_TRUE(has_fronts(job));
      expect_equal(simulated(job, Engine::classes), simulated(job, Engine::closed_form));
      job.collective_ns = 20'000'000;
      expect_equal(simulated(job, Engine::classes), simulated(job, Engine::closed_form));
    }
}

TEST(Fronts, NameTheSameRankWhereATimeOutPasses) {
  Job job = job_of("[" + kFaults[4] + ", " + kFaults[1] + "]").job;
  for (const int64_t ms : {5, 8, 12, 20, 40}) {
    job.collective_ns = ms * 1'000'000;
    expect_equal(simulated(job, Engine::classes), simulated(job, Engine::closed_form));
  }
}

TEST(Fronts, AreNoneWhereRanksLeaveAStepApart) {
  EXPECT_FALSE(
      has_fronts(job_of(R"([{"kind": "stall", "phase": "optimizer", "duration_ms": 3}])").job));
  EXPECT_FALSE(has_fronts(job_of(R"([{"kind": "kill", "rank": 1, "step": 5}])").job));
  Job job = job_of("[" + kFaults[0] + "]").job;
  EXPECT_TRUE(has_fronts(job));
  job.settled.back().ready_ns -= 1;
  EXPECT_FALSE(has_fronts(job));
  job = job_of("[" + kFaults[0] + "]").job;
  job.noise = noise_of("normal:0.1,bucket").value();
  EXPECT_FALSE(has_fronts(job));
}

}  // namespace
}  // namespace lockstep
