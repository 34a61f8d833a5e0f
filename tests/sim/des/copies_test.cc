// Hybrid sharding: groups of ranks hold a copy of the parameters each. What a group does is done
// among its neighbours, and its parts of the sums go between the groups.
#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/parse/suite.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"
#include "sim/plan/plan.h"
#include "tests/sim/des/random_job.h"
#include "tests/sim/des/two_blocks.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Two groups of two ranks: what takes 1 us among two ranks takes as long within each.
Job two_copies() {
  Job job = two_blocks();
  job.ranks = 4;
  job.parts->shard_ranks = 2;
  return job;
}

// Each group is a host, with 10 ns a byte between hosts: 1,000 bytes take 10 us to all-reduce.
Job two_hosts() {
  Job job = two_copies();
  job.cost.ranks_per_host = 2;
  job.cost.across = {0, 10'000'000, 0};
  return job;
}

StepNumbers step_of_copies(const Job& job, std::optional<Engine> engine = {}) {
  const auto run = simulate(job, {engine, 1});
  EXPECT_TRUE(run) << to_text(run.errors().front());
  return run ? run.value().steps.back() : StepNumbers();
}

// Forward waits 1 us for the first block, and ends after 5; backward waits 1 us for the last one. A
// sum of 1 us is followed by an all-reduce of a half, of 1 us, on the same wire: 14 + 2 us.
TEST(Copies, AreSummedBehindTheirGroupsSums) {
  const StepNumbers step = step_of_copies(two_copies());
  EXPECT_EQ(step.duration_ns, 16'000);
  EXPECT_EQ(step.exposed_ns, 4000);
  EXPECT_EQ(step.comm_ns, 8000);
}

// The last block's is under way from 11 to 21 us, beside the first one's compute and its sum, and
// the first one's from then on.
TEST(Copies, AreSummedBesideWhatGoesOnWithinHosts) {
  Job job = two_hosts();
  const StepNumbers step = step_of_copies(job);
  EXPECT_EQ(step.duration_ns, 31'000);
  EXPECT_EQ(step.exposed_ns, 19'000);
  EXPECT_EQ(step.comm_ns, 25'000);  // four gathers, the last block's sum, and 10 + 10 from 11 on
  job.cost.nics_per_host = 1;       // which both ranks of a host share
  EXPECT_EQ(step_of_copies(job).duration_ns, 51'000);
}

TEST(Copies, OfPassesThatAreNotDueAreNotSummed) {
  Job job = two_copies();
  job.passes = 2;
  EXPECT_EQ(step_of_copies(job).duration_ns, 14'000 + 16'000);
  job.each_pass = true;
  EXPECT_EQ(step_of_copies(job).duration_ns, 16'000 + 16'000);
}

TEST(Copies, ThereIsOneWhereAllRanksHoldIt) {
  Job job = two_copies();
  job.parts->shard_ranks = 4;
  const StepNumbers step = step_of_copies(job);
  job.parts->shard_ranks = 0;
  EXPECT_EQ(step, step_of_copies(job));
}

// Every rank its own copy: nothing is gathered, and all gradients are all-reduced.
TEST(Copies, OfOneRankAreAllReducedWhole) {
  Job job = two_copies();
  job.parts->shard_ranks = 1;
  // 2 x 3/4 x 2,000 bytes, from 4 + 4 us on and, when that is over, from 12.
  EXPECT_EQ(step_of_copies(job).duration_ns, 12'000 + 3000);
}

// By hand: of k ranks a ring of 2(k-1) rounds, over what all ranks of a host share.
TEST(Copies, GoAcrossOverAllLinksOfAHost) {
  CostModel cost;
  cost.link = {10, 1'000'000, 0};
  cost.across = {100, 8'000'000, 0};
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 8, 2), 6 * (10 + 1000)) << "hosts are not told apart";
  cost.ranks_per_host = 4;
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 4), 6 * (100 + 8000)) << "of one host each";
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 8), 2 * (100 + 16'000)) << "of two hosts each";
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 2), 14 * (100 + 4000)) << "two of a host";
  cost.nics_per_host = 1;
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 4), 6 * (100 + 32'000));
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 2), 14 * (100 + 8000)) << "two rings leave it";
  cost.nics_per_host = 4;
  cost.stripes = true;
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 2), 14 * (100 + 2000)) << "each over two of four";
  cost.stripes = false;
  cost.hosts_per_rack = 2;
  cost.oversubscription_millis = 4000;
  // Out of a rack with 8 NICs go the 4 rings of its last host, or all 8 where the next is two on.
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 4), 6 * (100 + 16'000));
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 16, 8), 2 * (100 + 64'000));
  cost.overhead_ns = 5;
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 4, 2), 5 + 2 * (10 + 2000));
  EXPECT_EQ(all_reduce_apart_ns(cost, 4000, 4, 4), 0) << "one copy";
}

// A rank that is late holds up its own group's gathers, and the other group when sums are due.
TEST(Copies, ALateRankHoldsUpItsOwnGroupFirst) {
  Job job = two_copies();
  job.steps = 1;
  job.schedule.touched = {3};
  job.schedule.at = [](int64_t, int64_t) {
    RankEvents events;
    events.forward_ns = 7000;
    return events;
  };
  EXPECT_THAT(why_not(job, Engine::classes), HasSubstr("copy"));
  std::vector<StepTrace> traces;
  const auto run = simulate(job, {}, [&](const StepTrace& trace) { traces.push_back(trace); });
  ASSERT_TRUE(run);
  EXPECT_EQ(run.value().engine, Engine::closed_form);
  const PassTrace& pass = traces.front().passes.front();
  EXPECT_EQ(pass.gather_done_ns[1], (std::vector<int64_t>{1000, 1000, 8000, 8000}));
  EXPECT_EQ(pass.done_ns[0], (std::vector<int64_t>{11'000, 11'000, 18'000, 18'000}));
  EXPECT_EQ(pass.summed_done_ns[0], (std::vector<int64_t>(4, 19'000)));
  EXPECT_EQ(run.value().steps.front().duration_ns, 16'000 + 7000);
}

TEST(Copies, ARankThatIsGoneIsMissedByItsGroup) {
  Job job = two_copies();
  job.schedule.touched = {2};
  job.schedule.at = [](int64_t, int64_t step) {
    RankEvents events;
    if (step == 2) events.end = RankEvents::End{.phase = Phase::backward, .dead = true};
    return events;
  };
  const auto failure = simulate(job).value().failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->cause, EndedBy::death);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->place, "backward");
}

TEST(Copies, ATimeOutThatIsTooShortIsNobodys) {
  Job job = two_hosts();
  job.collective_ns = 9999;  // an all-reduce between the copies takes 10,000
  const auto failure = simulate(job).value().failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->cause, EndedBy::short_timeout);
  EXPECT_EQ(failure->bucket, 0);
  EXPECT_FALSE(failure->rank);
}

// Groups that its network tells nothing of, or jobs that nobody thought through, are left alone.
Job random_copies(uint64_t seed) {
  Job job = random_units(seed);
  Rng rng(seed + 7);
  const int64_t held_by = drawn(rng, 1, 6);
  job.ranks = held_by * drawn(rng, 2, 4);
  job.channels = 1;
  job.parts->shard_ranks = held_by;
  const int64_t inside = job.cost.ranks_per_host;
  if (held_by % inside != 0 && inside % held_by != 0) job.cost.ranks_per_host = held_by;
  const int64_t hosts = held_by / job.cost.ranks_per_host;
  if (hosts > 1) job.cost.hosts_per_rack = hosts;
  job.schedule.touched.clear();
  if (drawn(rng, 0, 2) == 0) {
    job.overlap_slowdown = 0;
    job.schedule.touched = {drawn(rng, 0, job.ranks - 1)};
    job.schedule.at = [seed](int64_t rank, int64_t step) {
      return random_step(seed + static_cast<uint64_t>(100 * rank + step));
    };
  } else {
    job.schedule = {};
    if (job.overlap_slowdown > 0 || drawn(rng, 0, 1) == 0) job.noise = {};
  }
  return job;
}

TEST(Copies, AllEnginesGiveTheSame) {
  int64_t by_classes = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const Job job = random_copies(seed);
    ASSERT_TRUE(problems_of(job).empty()) << seed << to_text(problems_of(job).front());
    const auto each = simulate(job, {Engine::closed_form, 1}).value().steps;
    ASSERT_EQ(each, simulate(job, {Engine::rounds, 1}).value().steps) << seed;
    if (!why_not(job, Engine::classes).empty()) continue;
    ++by_classes;
    ASSERT_EQ(each, simulate(job, {Engine::classes, 1}).value().steps) << seed;
  }
  EXPECT_GT(by_classes, 500);
}

// Written down again: a rank's bytes over its fastest link, within its group and between copies.
std::pair<int64_t, int64_t> least_of_copies(const Job& job, bool due) {
  const CostModel& cost = job.cost;
  const int64_t held_by = job.parts->shard_ranks, copies = job.ranks / held_by;
  const int64_t nics = cost.nics_per_host == 0 ? cost.ranks_per_host : cost.nics_per_host;
  const int64_t fs = std::min(cost.link.beta_fs_per_byte,
                              cost.across.beta_fs_per_byte / (cost.stripes ? nics : 1));
  int64_t within = 0, between = 0;
  for (size_t u = 0; u < job.parts->units.size(); ++u)
    within += job.parts->units[u].bytes * (u > 0 && job.parts->reshard ? 2 : 1);
  for (const BucketWork& bucket : job.settled) within += due ? bucket.bytes : 0;
  for (const BucketWork& bucket : job.settled) between += due ? bucket.bytes / held_by : 0;
  return {within * fs / 1'000'000 * (held_by - 1) / held_by,
          between * fs / 1'000'000 * 2 * (copies - 1) / copies};
}

TEST(Bounds, HoldForCopiesInParts) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Job job = random_copies(seed);
    job.noise = {};
    job.schedule = {};
    int64_t within_ns = 0, between_ns = 0, work_ns = 0;
    for (int64_t pass = 1; pass <= job.passes; ++pass) {
      const auto [within, between] = least_of_copies(job, is_due(job, pass));
      within_ns += within;
      between_ns += between;
      work_ns += job.forward_ns + job.backward_ns + bucket_work_ns(job, pass);
    }
    const bool beside = copies_have_links(job);
    const auto run = simulate(job);
    for (const StepNumbers& step : run.value().steps) {
      ASSERT_GE(step.duration_ns, beside ? within_ns : within_ns + between_ns) << seed;
      ASSERT_GE(step.duration_ns, between_ns) << seed;
      ASSERT_GE(step.duration_ns, work_ns) << seed;
      ASSERT_LE(step.exposed_ns, step.duration_ns) << seed;
      ASSERT_LE(step.comm_ns, step.duration_ns) << seed;
    }
  }
}

TEST(Laws, MoreBytesOrLessBandwidthOfCopiesAreNeverFaster) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Job job = random_copies(seed);
    job.overlap_slowdown = 0;
    const int64_t before = step_of_copies(job).end_ns;
    Job other = job;
    other.cost.link.beta_fs_per_byte += 100'000;
    EXPECT_GE(step_of_copies(other).end_ns, before) << seed;
    other = job;
    other.cost.across.beta_fs_per_byte += 100'000;
    EXPECT_GE(step_of_copies(other).end_ns, before) << seed;
    other = job;
    for (BucketWork& bucket : other.settled) bucket.bytes += 1000;
    other.first_step = other.settled;
    EXPECT_GE(step_of_copies(other).end_ns, before) << seed;
  }
}

TEST(Copies, WhatNobodyThoughtThroughIsRefused) {
  const auto refused = [](auto change) {
    Job job = two_hosts();
    change(job);
    const auto problems = problems_of(job);
    return problems.empty() ? std::string() : problems.front().message;
  };
  EXPECT_EQ(refused([](Job&) {}), "");
  EXPECT_THAT(refused([](Job& job) { job.parts->shard_ranks = 3; }), HasSubstr("of 4 in all"));
  EXPECT_THAT(refused([](Job& job) {
                job.ranks = 6;
                job.parts->shard_ranks = 3;
              }),
              HasSubstr("on hosts of 2"));
  EXPECT_THAT(refused([](Job& job) { job.channels = 2; }), HasSubstr("channels"));
  EXPECT_THAT(refused([](Job& job) {
                job.overlap_slowdown = kOne;
                job.noise = {Distribution::normal, 0.1, false};
              }),
              HasSubstr("late apart"));
  EXPECT_THAT(refused([](Job& job) {
                job.cost.tables = {{4, {{1, 1}}, Operation::all_gather},
                                   {4, {{1, 1}}, Operation::reduce_scatter}};
              }),
              HasSubstr("measured"));
}

Expected<PlannedJob> planned_copies(const std::string& reducer, const MachineModel& machine,
                                    int64_t ranks) {
  const auto plans = gpt_in_units({"/reducer=" + reducer});
  if (!plans) return plans.errors();
  SimulatedAs as;
  as.ranks = ranks;
  return job_of_plan(plans.value().front(), machine, as);
}

TEST(CopiesOfPlan, AreGroupsOfNeighbours) {
  const MachineModel machine = *machine_preset("dgx_h100");
  const std::string copies = R"({"kind": "fsdp", "shard_ranks": 8})";
  const auto planned = planned_copies(copies, machine, 32);
  ASSERT_TRUE(planned) << to_text(planned.errors().front());
  EXPECT_TRUE(copies_have_links(planned.value().job));
  // Padded to parts of 8 ranks, not of 32.
  const auto one = planned_copies(R"({"kind": "fsdp"})", machine, 8);
  EXPECT_EQ(planned.value().job.parts->units[1].bytes, one.value().job.parts->units[1].bytes);
  const auto refusal = [&](const std::string& reducer, int64_t ranks) {
    const auto refused = planned_copies(reducer, machine, ranks);
    return refused ? std::string() : to_text(refused.errors().front());
  };
  EXPECT_EQ(refusal(copies, 8), "");
  EXPECT_THAT(refusal(copies, 12), HasSubstr("12 ranks are no whole groups of 8"));
  EXPECT_THAT(refusal(R"({"kind": "fsdp", "shard_ranks": 6})", 24), HasSubstr("on hosts of 8"));
  EXPECT_THAT(refusal(R"({"kind": "bucketed", "shard_ranks": 2})", 2),
              HasSubstr("gathers no parameters"));
  MachineModel mesh = machine;
  mesh.cost.mesh = {{4, 4}, {8, 6}};
  EXPECT_FALSE(planned_copies(R"({"kind": "fsdp", "shard_ranks": 4})", mesh, 16));
}

// A step waits for the sums between its copies, on the machine too: with all ranks as one copy
// gathers go between hosts, with a copy on each host only the sums do.
TEST(CopiesOfPlan, GatherWithinAHost) {
  const MachineModel machine = *machine_preset("dgx_h100");
  const Job one = planned_copies(R"({"kind": "fsdp"})", machine, 32).value().job;
  const Job copies =
      planned_copies(R"({"kind": "fsdp", "shard_ranks": 8})", machine, 32).value().job;
  EXPECT_LT(unit_ns(copies, Operation::all_gather, 1 << 20),
            unit_ns(one, Operation::all_gather, 1 << 20));
  EXPECT_EQ(unit_ns(copies, Operation::all_reduce, 8 * 1'000'000), 2 * 3 * (5000 + 5000));
}

// Every all-reduce between the copies is in the records of each rank, behind its reduce-scatter.
TEST(CopiesOfPlan, LeaveRecords) {
  const auto plan =
      gpt_in_units({R"(/reducer={"kind": "fsdp", "shard_ranks": 2})"}).value().front();
  SimulatedAs as;
  as.ranks = 4;
  as.steps = 2;
  const auto planned = job_of_plan(plan, default_machine_model(), as);
  ASSERT_TRUE(planned) << to_text(planned.errors().front());
  VirtualRecords records(plan, planned.value());
  const auto run =
      simulate(planned.value().job, {}, [&](const StepTrace& trace) { records.add(trace); });
  const RunOutcome outcome = records.take(run.value());
  for (const RankRecords& rank : outcome.ranks) {
    int64_t gathers = 0, sums = 0, between = 0;
    for (const Event& event : rank.events) {
      if (event.step == 0 || event.kind != static_cast<uint16_t>(EventKind::arrival)) continue;
      const auto operation = static_cast<Operation>(unpack_collective(event.value).operation);
      gathers += operation == Operation::all_gather ? 1 : 0;
      sums += operation == Operation::reduce_scatter ? 1 : 0;
      between += operation == Operation::all_reduce ? 1 : 0;
    }
    EXPECT_EQ(gathers, 2 * (3 + 2));  // steps, forward and backward
    EXPECT_EQ(sums, 2 * 3);
    EXPECT_EQ(between, 2 * 3);
  }
}

}  // namespace
}  // namespace lockstep
