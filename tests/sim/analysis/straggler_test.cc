#include <gmock/gmock.h>

#include <cstdio>
#include <map>
#include <memory>

#include "sim/analysis/metrics.h"
#include "sim/analysis/step_model.h"
#include "sim/analysis/straggler.h"
#include "sim/judge/judge.h"
#include "tests/sim/analysis/growth.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

Straggler straggler_of(const MadeRun& run) {
  const auto found = find_straggler(models_of(timeline_of(run.make())));
  EXPECT_TRUE(found);
  return found.value_or(Straggler{});
}

MadeRun jittery(uint64_t seed) {
  MadeRun run;
  run.seed = seed;
  run.jitter = 0.02;
  run.apart_ms = 3;
  run.world_size = std::vector<int64_t>{2, 3, 4, 6, 7}[seed % 5];
  return run;
}

MadeRun::Slower times(bool acts, double factor) { return {acts ? factor : 1, 0}; }

constexpr int kSeeds = 200;

// How many of 200 seeded runs name this class, and rank 1 unless the class names none.
template <class Change>
int64_t right_of(const std::string& word, Change change) {
  int64_t right = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    MadeRun run = jittery(static_cast<uint64_t>(seed));
    change(&run);
    const Straggler found = straggler_of(run);
    const bool nobody = word == "none" || word == "wandering";
    const bool is_right = found.late_class == word &&
                          found.rank == (nobody ? std::nullopt : std::optional<int64_t>(1));
    if (!is_right) std::printf("seed %d: %s\n", seed, found.text.c_str());
    right += is_right;
  }
  return right;
}

TEST(Straggler, AccusesNobodyInCleanRuns) {
  EXPECT_EQ(right_of("none", [](MadeRun*) {}), kSeeds);
}

TEST(Straggler, AccusesNobodyInNoisyRuns) {
  EXPECT_EQ(right_of("none", [](MadeRun* run) { run->jitter = 0.1; }), kSeeds);
}

// As on a busy machine: every now and then a rank is held up, for any time.
TEST(Straggler, AccusesNobodyOnBusyMachines) {
  EXPECT_GE(right_of("none",
                     [](MadeRun* run) {
                       run->forward_ms = run->backward_ms = 1.5;
                       auto random = std::make_shared<std::mt19937_64>(run->seed);
                       run->slower = [random](int64_t, int64_t, Phase) {
                         std::exponential_distribution<double> length(1 / 2.0);
                         return MadeRun::Slower{1, (*random)() % 6 == 0 ? length(*random) : 0};
                       };
                     }),
            kSeeds * 98 / 100);
}

// Ranks that have no core for a while, every now and then, as on a machine with other work.
void starve(MadeRun* run, double mean_ms, int64_t one_in) {
  auto random = std::make_shared<std::mt19937_64>(run->seed + 1000);
  run->core_wait_ms = [=](int64_t, int64_t, Phase) {
    std::exponential_distribution<double> length(1 / mean_ms);
    return (*random)() % static_cast<uint64_t>(one_in) == 0 ? length(*random) : 0;
  };
}

TEST(Straggler, WhoHadNoCoreIsNotLate) {
  for (const char* change : {"one rank in all steps", "one rank once", "ranks in turn"}) {
    MadeRun run;
    const std::string word = change;
    run.core_wait_ms = [=](int64_t rank, int64_t step, Phase phase) {
      if (phase != Phase::backward) return 0.0;
      if (word == "one rank once") return rank == 2 && step == 7 ? 150.0 : 0.0;
      return rank == (word == "ranks in turn" ? step % 4 : 2) ? 30.0 : 0.0;
    };
    const Straggler found = straggler_of(run);
    EXPECT_EQ(found.late_class, kStarved) << change;
    EXPECT_FALSE(found.rank) << change;
    EXPECT_THAT(found.ranks, testing::IsEmpty()) << change;
    EXPECT_GT(found.core_wait_ms, 1) << change;
    EXPECT_NEAR(found.without_ms, 32, 0.1) << change;
    EXPECT_THAT(found.text, testing::StartsWith("busy machine: nobody is accused")) << change;
  }
}

// Of two there is no third to tell what is usual.
TEST(Straggler, WhoHadNoCoreIsNotLateOnTwoRanks) {
  for (const double wait_ms : {3.0, 30.0, 300.0}) {
    MadeRun run;
    run.world_size = 2;
    run.core_wait_ms = [=](int64_t rank, int64_t, Phase phase) {
      return rank == 1 && phase == Phase::backward ? wait_ms : 0.0;
    };
    const Straggler found = straggler_of(run);
    EXPECT_EQ(found.late_class, wait_ms < 10 ? std::string("none") : kStarved) << found.text;
    EXPECT_FALSE(found.rank) << wait_ms << " " << found.text;
  }
}

TEST(Straggler, WhoIsLateWithACoreIsNamedOnABusyMachineToo) {
  MadeRun run;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return times(rank == 1 && phase == Phase::backward, 1.5);
  };
  run.core_wait_ms = [](int64_t rank, int64_t step, Phase phase) {
    return phase == Phase::forward && (rank + step) % 3 == 0 ? 2.0 : 0.0;
  };
  const Straggler found = straggler_of(run);
  EXPECT_EQ(found.late_class, "compute");
  EXPECT_EQ(found.rank, 1);
  EXPECT_GT(found.core_wait_ms, 0.5);
}

// Whatever the load, and whether it costs anything or not: the right answer, or none.
TEST(Straggler, NoLoadMakesAnAnswerWrong) {
  const std::vector<std::string> words = {"none", "compute", "periodic", "stopped", "wandering"};
  std::map<std::string, int> right, undecided;
  for (const std::string& word : words)
    for (int seed = 0; seed < kSeeds; ++seed) {
      MadeRun run = jittery(static_cast<uint64_t>(seed));
      const int64_t ranks = run.world_size;
      run.slower = [=](int64_t rank, int64_t step, Phase phase) {
        if (word == "wandering") return times(step % ranks == rank, 1.4);
        if (rank != 1 || word == "none") return times(false, 1);
        if (word == "stopped")
          return MadeRun::Slower{1, step == 9 && phase == Phase::backward ? 250.0 : 0};
        return times(word == "compute" || step % 4 == 0, 1.4);
      };
      starve(&run, seed % 3 == 0 ? 1 : 8, 1 + seed % 5);
      run.unnoticed = seed % 2 == 0;
      const Straggler found = straggler_of(run);
      if (found.late_class == kStarved) {
        ++undecided[word];
        EXPECT_FALSE(found.rank);
        continue;
      }
      const bool named = word != "none" && word != "wandering";
      right[word] += found.late_class == word && found.rank.has_value() == named;
      EXPECT_TRUE(!found.rank || (named && *found.rank == 1)) << word << seed << found.text;
    }
  for (const std::string& word : words) {
    std::printf("%s: %d right, %d undecided of %d\n", word.c_str(), right[word], undecided[word],
                kSeeds);
    EXPECT_GE(right[word] + undecided[word], kSeeds * 98 / 100) << word;
  }
}

TEST(Straggler, WhatNobodyWaitsForIsNoStraggler) {
  MadeRun run;
  run.transfer_ms = 900;  // 3.7 ms until the first bucket is ready are nothing beside three of them
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return times(rank == 1 && phase == Phase::backward, 1.5);
  };
  EXPECT_EQ(straggler_of(run).late_class, "none");
}

TEST(Straggler, NamesOneThatComputesSlowly) {
  EXPECT_GE(right_of("compute",
                     [](MadeRun* run) {
                       run->slower = [](int64_t rank, int64_t, Phase phase) {
                         return times(rank == 1 && phase != Phase::load, 1.2);
                       };
                     }),
            kSeeds * 99 / 100);
}

TEST(Straggler, NamesOneWithASlowLink) {
  EXPECT_GE(right_of("link",
                     [](MadeRun* run) {
                       run->launched = true;
                       run->delay_ms = [](int64_t rank, int64_t) { return rank == 1 ? 3 : 0; };
                     }),
            kSeeds * 99 / 100);
}

TEST(Straggler, NamesOneThatPauses) {
  EXPECT_GE(right_of("periodic",
                     [](MadeRun* run) {
                       const int64_t period = 2 + static_cast<int64_t>(run->seed % 4);
                       run->slower = [period](int64_t rank, int64_t step, Phase) {
                         return times(rank == 1 && step % period == 0, 1.2);
                       };
                     }),
            kSeeds * 99 / 100);
}

TEST(Straggler, NamesOneThatPausesOnABusyMachine) {
  EXPECT_GE(right_of("periodic",
                     [](MadeRun* run) {
                       run->forward_ms = run->backward_ms = 1.5;
                       auto random = std::make_shared<std::mt19937_64>(run->seed);
                       run->slower = [random](int64_t rank, int64_t step, Phase phase) {
                         std::exponential_distribution<double> length(1 / 2.0);
                         const double held_up = (*random)() % 6 == 0 ? length(*random) : 0;
                         const bool pause = rank == 1 && step % 4 == 0 && phase == Phase::backward;
                         return MadeRun::Slower{1, held_up + (pause ? 40 : 0)};
                       };
                     }),
            kSeeds * 98 / 100);
}

TEST(Straggler, NamesOneThatStoodStillOnce) {
  EXPECT_GE(right_of("stopped",
                     [](MadeRun* run) {
                       const auto when = 2 + static_cast<int64_t>(run->seed % 18);
                       run->slower = [when](int64_t rank, int64_t step, Phase phase) {
                         const bool acts = rank == 1 && step == when && phase == Phase::backward;
                         return MadeRun::Slower{1, acts ? 200.0 : 0};
                       };
                     }),
            kSeeds * 99 / 100);
}

TEST(Straggler, NamesNobodyWhereItWanders) {
  EXPECT_GE(right_of("wandering",
                     [](MadeRun* run) {
                       const int64_t ranks = run->world_size;
                       const bool drawn = run->seed % 2 == 0;
                       run->slower = [=](int64_t rank, int64_t step, Phase) {
                         const int64_t who = drawn ? step * 7919 % 31 : step;
                         return times(who % ranks == rank, 1.2);
                       };
                     }),
            kSeeds * 99 / 100);
}

// What every step suffers from is the answer, not what one step suffered besides.
TEST(Straggler, NamesNobodyWhereItWandersAndOneStoodStillOnce) {
  EXPECT_GE(right_of("wandering",
                     [](MadeRun* run) {
                       const int64_t ranks = run->world_size;
                       run->slower = [=](int64_t rank, int64_t step, Phase phase) {
                         MadeRun::Slower slower = times(step % ranks == rank, 1.5);
                         const bool still = rank == 1 && step == 7 && phase == Phase::backward;
                         if (still) slower.more_ms = 90;
                         return slower;
                       };
                     }),
            kSeeds * 99 / 100);
}

TEST(Straggler, CountsWhatItCosts) {
  MadeRun run;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return times(rank == 1 && phase == Phase::backward, 1.5);
  };
  const Straggler found = straggler_of(run);
  EXPECT_EQ(found.late_class, "compute");
  EXPECT_EQ(found.phase, "backward");
  EXPECT_EQ(found.late_steps, 19);
  EXPECT_NEAR(found.times, 42.0 / 32, 0.001);
  EXPECT_NEAR(*found.score, 32.0 / 42, 0.001);
  // The last bucket leaves at 6/7 of backward; 2 ms to transfer it end before the others' backward.
  EXPECT_NEAR(found.cost_ms, 10, 0.01);
  EXPECT_NEAR(found.step_ms, 42, 0.01);
  EXPECT_EQ(found.text,
            "rank 1 is late: compute in backward, 10.0 ms per step (1.31x) in 19 of 19 steps; "
            "without it a step would take 32.0 ms instead of 42.0");
}

TEST(Straggler, TwoOfFourLateAreNotTheMachine) {
  MadeRun run;
  run.slower = [](int64_t rank, int64_t, Phase) {
    return MadeRun::Slower{rank == 1 ? 1.5 : rank == 2 ? 1.3 : 1, 0};
  };
  EXPECT_EQ(straggler_of(run).rank, 1);
}

TEST(Straggler, WhatHitsAllRanksIsTheMachine) {
  MadeRun run;
  run.jitter = 0.02;
  run.slower = [](int64_t, int64_t step, Phase) { return times(step % 3 == 0, 3); };
  EXPECT_EQ(straggler_of(run).late_class, "none");
}

TEST(Straggler, FewStepsProveNothing) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 4;
  run.slower = [](int64_t rank, int64_t, Phase) { return times(rank == 1, 1.2); };
  EXPECT_EQ(straggler_of(run).late_class, "none");
  run.steps = 12;
  EXPECT_EQ(straggler_of(run).late_class, "compute");
}

TEST(Straggler, ALinkIsNotAccusedWithoutLaunches) {
  MadeRun run;
  run.delay_ms = [](int64_t rank, int64_t) { return rank == 1 ? 5 : 0; };
  EXPECT_EQ(straggler_of(run).late_class, "none");
}

TEST(Straggler, ReceiptsSayNothing) {
  MadeRun run;
  RunOutcome outcome = run.make();
  const auto before = find_straggler(models_of(timeline_of(outcome)));
  for (int64_t step = 1; step <= run.steps; ++step)
    outcome.ranks[1].events.push_back(
        {0, 0, static_cast<uint16_t>(EventKind::receipt), 5, static_cast<int32_t>(step), 0, 0});
  EXPECT_EQ(find_straggler(models_of(timeline_of(outcome)))->text, before->text);
}

TEST(Straggler, OneRankHasNobodyToCompareWith) {
  MadeRun run;
  run.world_size = 1;
  EXPECT_FALSE(find_straggler(models_of(timeline_of(run.make()))));
  EXPECT_FALSE(find_straggler({}));
}

// No lane is asked for, so the run is inconclusive by itself.
RunResult judged(const MadeRun& run, const ExpectedStraggler& expected,
                 std::optional<Verdict> verdict = {}) {
  RunOutcome outcome = run.make();
  Scenario& scenario = outcome.plan.scenario;
  scenario.communicator.options.set("algorithm", std::string("ring"));
  scenario.expect[0].straggler = expected;
  scenario.expect[0].verdict = verdict;
  outcome.evidence.resize(outcome.ranks.size());
  return judge_run(outcome);
}

TEST(Straggler, IsHeldAgainstTheExpectation) {
  MadeRun run;
  using testing::Contains;
  using testing::ElementsAre;
  EXPECT_TRUE(judged(run, {"none", {}}).unmet.empty());
  EXPECT_THAT(judged(run, {"compute", 1}).unmet,
              ElementsAre("straggler: expected compute, got none",
                          "straggler's rank: expected 1, got none"));
  run.slower = [](int64_t rank, int64_t, Phase) { return times(rank == 1, 1.2); };
  EXPECT_TRUE(judged(run, {"compute", 1}).unmet.empty());
  EXPECT_EQ(judged(run, {"compute", 1}).expected, "straggler rank 1 compute");
  EXPECT_THAT(judged(run, {"compute", 2}).unmet,
              ElementsAre("straggler's rank: expected 2, got 1"));
  EXPECT_THAT(judged(run, {"none", {}}).unmet,
              ElementsAre("straggler: expected none, got compute"));
  run.steps = 1;
  EXPECT_THAT(judged(run, {"none", {}}).unmet,
              ElementsAre("straggler: expected none, got not known"));
}

TEST(Straggler, OnABusyMachineNoExpectationIsUnmet) {
  MadeRun run;
  EXPECT_EQ(judged(run, {"none", {}}, Verdict::inconclusive).met, true);
  EXPECT_EQ(judged(run, {"none", {}}, Verdict::inconclusive).undecided, Undecided::decided);
  run.core_wait_ms = [](int64_t rank, int64_t, Phase phase) {
    return rank == 2 && phase == Phase::forward ? 20.0 : 0.0;
  };
  for (const ExpectedStraggler& expected :
       {ExpectedStraggler{"none", {}}, {"compute", 1}, {"compute", 2}}) {
    const RunResult result = judged(run, expected, Verdict::inconclusive);
    EXPECT_EQ(result.met, std::nullopt);
    EXPECT_EQ(result.undecided, Undecided::busy_machine);
    EXPECT_THAT(result.unmet, testing::Contains(testing::HasSubstr("got starved")));
    EXPECT_EQ(judged(run, expected, Verdict::pass).undecided, Undecided::inconclusive)
        << "of which the machine is not the reason";
  }
}

TEST(Straggler, ARunThatFailedHasNone) {
  MadeRun run;
  RunOutcome outcome = run.make();
  outcome.plan.scenario.communicator.options.set("algorithm", std::string("ring"));
  outcome.evidence.resize(outcome.ranks.size());
  EXPECT_FALSE(judge_run(outcome).metrics) << "nobody asked";
  EXPECT_TRUE(judge_run(outcome, {.metrics = true}).straggler);
  outcome.ends.push_back({"rank-1", 1, 0, 0, -1, 9, false, false});
  const RunResult failed = judge_run(outcome, {.metrics = true});
  EXPECT_TRUE(failed.metrics);
  EXPECT_FALSE(failed.straggler);
}

TEST(Straggler, ChanceIsBinomial) {
  EXPECT_NEAR(chance_of(3, 3, 4), 4.0 / 64, 1e-12);
  EXPECT_NEAR(chance_of(9, 10, 2), 2 * 11.0 / 1024, 1e-12);
  EXPECT_DOUBLE_EQ(chance_of(0, 5, 3), 1);
}

// From the records of all ranks to metrics and the straggler.
TEST(Straggler, IsFoundInTimeThatGrowsWithTheRanks) {
  const auto judged = [](int64_t ranks) {
    MadeRun run;
    run.world_size = ranks;
    run.steps = 4;
    run.jitter = 0.02;
    run.slower = [](int64_t rank, int64_t, Phase phase) {
      return times(rank == 1 && phase != Phase::load, 1.2);
    };
    return [outcome = run.make()] {
      const Timeline timeline = timeline_of(outcome);
      EXPECT_EQ(metrics_of(timeline).ranks.size(), outcome.ranks.size());
      EXPECT_EQ(find_straggler(models_of(timeline))->rank, 1);
    };
  };
  EXPECT_LE(growth_of(judged, 500, 8), 8);
}

TEST(MediansOfOthers, AreThoseWithoutTheValue) {
  for (const std::vector<double>& values :
       {std::vector<double>{3, 1}, {3, 1, 2}, {5, 5, 1, 5}, {4, 1, 3, 2, 9}}) {
    const MediansOfOthers medians(values);
    for (size_t i = 0; i < values.size(); ++i) {
      std::vector<double> others = values;
      others.erase(others.begin() + static_cast<int64_t>(i));
      EXPECT_EQ(medians.without(values[i]), median_of(others));
    }
  }
}

}  // namespace

}  // namespace lockstep
