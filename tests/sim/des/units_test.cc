// Parameters that ranks hold in parts: units are gathered ahead of compute and their gradients
// reduce-scattered behind it.
#include <gmock/gmock.h>

#include <algorithm>

#include "scenarios/parse/suite.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"
#include "sim/des/units_of_plan.h"
#include "sim/plan/plan.h"
#include "tests/sim/des/random_job.h"
#include "tests/sim/des/two_blocks.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

StepNumbers second_step(const Job& job) { return simulate(job).value().steps[1]; }

// Forward waits 1 us for the first block and backward for the last one; what is left of the sums
// after backward is one block's.
TEST(Units, AreGatheredAheadOfCompute) {
  const StepNumbers step = second_step(two_blocks());
  EXPECT_EQ(step.duration_ns, 15'000);
  EXPECT_EQ(step.exposed_ns, 3000);
  EXPECT_EQ(step.comm_ns, 6000);
}

// Each is asked for when compute has come to it: behind the sum of the block before, in backward.
TEST(Units, WithoutPrefetchComputeWaitsForEach) {
  Job job = two_blocks();
  job.parts->prefetch = 0;
  EXPECT_EQ(second_step(job).duration_ns, 18'000);
}

TEST(Units, ThatAreKeptAreNotGatheredAgain) {
  Job job = two_blocks();
  job.parts->reshard = false;
  EXPECT_EQ(second_step(job).duration_ns, 14'000);
}

// In no_sync passes parameters are gathered all the same, and nothing is summed.
TEST(Units, OfPassesThatAreNotDueAreOnlyGathered) {
  Job job = two_blocks();
  job.passes = 2;
  EXPECT_EQ(second_step(job).duration_ns, 14'000 + 15'000);
  job.each_pass = true;
  EXPECT_EQ(second_step(job).duration_ns, 15'000 + 15'000);
}

TEST(Units, OfOneRankTakeNoTime) {
  Job job = two_blocks();
  job.ranks = 1;
  EXPECT_EQ(second_step(job).duration_ns, 12'000);
}

// Compute is longer under what is gathered for later: 1 us of each unit that is not waited for.
TEST(Units, SlowComputeDownWhileTheyAreGathered) {
  Job job = two_blocks();
  job.overlap_slowdown = kOne;
  EXPECT_GT(second_step(job).duration_ns, 15'000);
}

std::vector<StepNumbers> steps_of_units(const Job& job, Engine engine) {
  const auto run = simulate(job, {engine, 1});
  EXPECT_TRUE(run) << to_text(run.errors().front());
  return run ? run.value().steps : std::vector<StepNumbers>();
}

TEST(Units, AllEnginesGiveTheSame) {
  int64_t by_classes = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const Job job = random_units(seed);
    ASSERT_TRUE(problems_of(job).empty()) << seed << to_text(problems_of(job).front());
    const auto each = steps_of_units(job, Engine::closed_form);
    EXPECT_EQ(each, steps_of_units(job, Engine::rounds)) << seed;
    if (!why_not(job, Engine::classes).empty()) continue;
    ++by_classes;
    ASSERT_EQ(each, steps_of_units(job, Engine::classes)) << seed;
  }
  EXPECT_GT(by_classes, 500);
}

// Written down again: all bytes of a pass over one rank's faster kind of link, and compute.
int64_t least_pass_ns(const Job& job, bool due) {
  const CostModel& cost = job.cost;
  const bool hosts = (cost.ranks_per_host > 1 || cost.algorithm == Algorithm::hierarchical) &&
                     job.ranks > cost.ranks_per_host;
  const int64_t nics = cost.nics_per_host == 0 ? cost.ranks_per_host : cost.nics_per_host;
  const int64_t across = cost.across.beta_fs_per_byte / (cost.stripes ? nics : 1);
  const int64_t fs =
      hosts ? std::min(cost.link.beta_fs_per_byte, across) : cost.link.beta_fs_per_byte;
  int64_t bytes = 0;
  for (size_t u = 0; u < job.parts->units.size(); ++u)
    bytes += job.parts->units[u].bytes * (u > 0 && job.parts->reshard ? 2 : 1);
  for (const BucketWork& bucket : job.settled) bytes += due ? bucket.bytes : 0;
  return static_cast<int64_t>(static_cast<__int128>(bytes) * fs * (job.ranks - 1) / job.ranks /
                              1'000'000);
}

TEST(Bounds, HoldForUnitsOfParameters) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Job job = random_units(seed);
    job.noise = {};
    job.schedule = {};
    Rng rng(seed + 5);
    job.channels = drawn(rng, 1, 64);
    int64_t bytes_ns = 0, work_ns = 0;
    for (int64_t pass = 1; pass <= job.passes; ++pass) {
      bytes_ns += least_pass_ns(job, is_due(job, pass));
      work_ns += job.forward_ns + job.backward_ns + bucket_work_ns(job, pass);
    }
    for (const StepNumbers& step : steps_of_units(job, cheapest_engine(job))) {
      ASSERT_GE(step.duration_ns, bytes_ns) << seed;
      ASSERT_GE(step.duration_ns, work_ns) << seed;
      ASSERT_LE(step.exposed_ns, step.duration_ns) << seed;
    }
  }
}

TEST(Laws, MoreBytesOrLessBandwidthOfUnitsAreNeverFaster) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Job job = random_units(seed);
    job.noise = {};
    job.overlap_slowdown = 0;
    const int64_t before = steps_of_units(job, Engine::closed_form).back().end_ns;
    Job other = job;
    other.cost.link.beta_fs_per_byte += 100'000;
    EXPECT_GE(steps_of_units(other, Engine::closed_form).back().end_ns, before) << seed;
    other = job;
    for (ParameterShards::Unit& unit : other.parts->units) unit.bytes += 1000;
    EXPECT_GE(steps_of_units(other, Engine::closed_form).back().end_ns, before) << seed;
    if (!job.parts->reshard) continue;
    other = job;
    other.parts->reshard = false;
    EXPECT_LE(steps_of_units(other, Engine::closed_form).back().end_ns, before) << seed;
  }
}

TEST(Units, ARankThatIsGoneIsMissedWhereItsPeersAskForIt) {
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    Job job = two_blocks();
    job.steps = 3;
    job.schedule.touched = {1};
    job.schedule.at = [phase](int64_t, int64_t step) {
      RankEvents events;
      if (step == 2) events.end = RankEvents::End{.phase = phase, .dead = true};
      return events;
    };
    const auto failure = simulate(job).value().failure;
    ASSERT_TRUE(failure) << to_word(phase);
    EXPECT_EQ(failure->cause, EndedBy::death);
    EXPECT_EQ(failure->rank, 1);
    EXPECT_EQ(failure->place, to_word(phase));
    EXPECT_EQ(failure->step, phase == Phase::optimizer ? 3 : 2);
  }
}

TEST(Units, ATimeOutThatIsTooShortIsNobodys) {
  Job job = two_blocks();
  job.collective_ns = 500;
  const auto failure = simulate(job).value().failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->cause, EndedBy::short_timeout);
  EXPECT_EQ(failure->place, "forward");
  EXPECT_FALSE(failure->rank);
}

TEST(Units, WhatNobodyThoughtThroughIsRefused) {
  const auto refused = [](auto change) {
    Job job = two_blocks();
    change(job);
    const auto problems = problems_of(job);
    return problems.empty() ? std::string() : problems.front().message;
  };
  EXPECT_EQ(refused([](Job&) {}), "");
  EXPECT_THAT(refused([](Job& job) { job.comm_slowdown = 1; }), HasSubstr("comm_slowdown"));
  EXPECT_THAT(refused([](Job& job) {
                job.noise = {Distribution::normal, 0.1, true};
              }),
              HasSubstr("noise of each bucket"));
  EXPECT_THAT(refused([](Job& job) { job.local_from = 1; }), HasSubstr("local steps"));
  EXPECT_THAT(refused([](Job& job) { job.parts->units[1].done_ns = 9000; }), HasSubstr("done_ns"));
  EXPECT_THAT(refused([](Job& job) { job.parts->units.pop_back(); }), HasSubstr("buckets of"));
}

TEST(UnitsOfPlan, AreBlocksByTheirNumbersAndARoot) {
  EXPECT_EQ(unit_of_name("h.3.attn.weight", true), "h.3");
  EXPECT_EQ(unit_of_name("layer1.0.conv1.weight", true), "layer1.0");
  EXPECT_EQ(unit_of_name("wte.weight", true), "");
  EXPECT_EQ(unit_of_name("block12.norm1.weight", false), "block12");
  const auto plans = gpt_in_units({});
  ASSERT_TRUE(plans) << to_text(plans.errors().front());
  const auto units =
      units_of_plan(plans.value().front(), default_machine_model(), {10'000'000, 20'000'000}, 3);
  ASSERT_TRUE(units);
  EXPECT_THAT(units.value().names, ElementsAre("", "block1", "block2"));
  const auto& parts = units.value().parts.units;
  EXPECT_EQ(parts[1].bytes, parts[2].bytes);
  EXPECT_LT(parts[1].forward_ns, parts[2].forward_ns);
  EXPECT_EQ(parts[1].backward_ns, parts[2].done_ns);
  // 12 x 32 x 32 of weights and 13 x 32 of biases and norms, in parts of equal rows for 3 ranks.
  EXPECT_GE(parts[1].bytes, 4 * (12 * 32 * 32 + 13 * 32));
  EXPECT_LE(parts[1].bytes, 4 * (12 * 32 * 32 + 13 * 32) * 35 / 32);
  EXPECT_EQ(units.value().layout.size(), 3u);
}

TEST(UnitsOfPlan, TypesDecideTheirBytes) {
  const auto bytes = [](const std::vector<std::string>& sets) {
    const auto units = units_of_plan(gpt_in_units(sets).value().front(), default_machine_model(),
                                     {10'000'000, 20'000'000}, 4);
    return std::pair(units.value().parts.units[1].bytes, units.value().works[1].bytes);
  };
  const auto [gathered, reduced] = bytes({});
  EXPECT_EQ(gathered, reduced);
  EXPECT_EQ(bytes({R"(/reducer={"kind": "fsdp", "gather_dtype": "bfloat16"})"}),
            std::pair(gathered / 2, reduced / 2));
  EXPECT_EQ(
      bytes(
          {R"(/reducer={"kind": "fsdp", "gather_dtype": "bfloat16", "reduce_dtype": "float32"})"}),
      std::pair(gathered / 2, reduced));
}

// NCCL all-reduces by other algorithms, but gathers and scatters in rings alone.
TEST(UnitsOfPlan, AreGatheredInOneRingOverAllNics) {
  MachineModel machine = *machine_preset("dgx_h100");
  const auto cost_of = [&](const std::vector<std::string>& sets) {
    SimulatedAs as;
    as.ranks = 32;
    const auto planned = job_of_plan(gpt_in_units(sets).value().front(), machine, as);
    EXPECT_THAT(planned.value().notes, IsEmpty()) << "as the machine says";
    return planned.value().job.cost;
  };
  const CostModel units = cost_of({});
  EXPECT_EQ(units.algorithm, Algorithm::ring);
  EXPECT_TRUE(units.stripes);
  // A message of each but one of 32 ranks, and 31/32 of 32 MB at eight NICs' 400 GB/s.
  EXPECT_EQ(all_gather_ns(units, 32'000'000, 32), 31 * (5000 + 2500));
  const CostModel buckets = cost_of({"/reducer/kind=bucketed"});
  EXPECT_EQ(buckets.algorithm, Algorithm::hierarchical);
  EXPECT_FALSE(buckets.stripes);
  const auto kept = nlohmann::ordered_json::parse(to_text(machine, nullptr));
  EXPECT_EQ(kept["flat_gathers"], true);
  machine.flat_gathers = false;
  EXPECT_EQ(cost_of({}).algorithm, Algorithm::hierarchical) << "as its file says";
}

// No worker has such a reducer, and what other reducers' keys would say is not ignored.
TEST(UnitsOfPlan, AreOfVirtualTimeAlone) {
  const auto refusal = [](const std::vector<std::string>& sets, bool only) {
    const auto plans = gpt_in_units(sets, only);
    return plans ? std::string() : to_text(plans.errors().front());
  };
  EXPECT_EQ(refusal({}, true), "");
  EXPECT_THAT(refusal({}, false), HasSubstr("known to virtual time alone"));
  EXPECT_THAT(refusal({R"(/reducer={"kind": "bucketed", "prefetch": 1})"}, true),
              HasSubstr("gathers no parameters"));
  EXPECT_THAT(refusal({R"(/comm_hook={"kind": "fp16"})"}, true), HasSubstr("comm hook"));
  EXPECT_THAT(refusal({R"(/reducer={"kind": "fsdp", "static_graph": true})"}, true),
              HasSubstr("is DDP's"));
  EXPECT_THAT(refusal({"/communicator/algorithm=bcube"}, true), HasSubstr("in rings"));
}

// Every gather and every sum is in the records of each rank, under one number on all of them.
TEST(UnitsOfPlan, LeaveRecords) {
  const auto plan = gpt_in_units({"/world_size=3", "/accumulate_steps=2"}).value().front();
  SimulatedAs as;
  as.steps = 2;
  const auto planned = job_of_plan(plan, default_machine_model(), as);
  ASSERT_TRUE(planned) << to_text(planned.errors().front());
  VirtualRecords records(plan, planned.value());
  const auto run =
      simulate(planned.value().job, {}, [&](const StepTrace& trace) { records.add(trace); });
  const RunOutcome outcome = records.take(run.value());
  for (const RankRecords& rank : outcome.ranks) {
    int64_t gathers = 0, sums = 0, last_ns = 0;
    for (const Event& event : rank.events) {
      EXPECT_GE(event.time_ns, last_ns);
      last_ns = event.time_ns;
      if (event.step == 0 || event.kind != static_cast<uint16_t>(EventKind::arrival)) continue;
      (event.subject < 0 ? gathers : sums) += 1;
    }
    EXPECT_EQ(gathers, 2 * 2 * (3 + 2));  // steps, passes, forward and backward
    EXPECT_EQ(sums, 2 * 3);
  }
}

}  // namespace
}  // namespace lockstep
