#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "sim/analysis/pipeline_slowdown.h"
#include "sim/analysis/pipeline_trace.h"
#include "tests/sim/analysis/growth.h"
#include "tests/sim/analysis/made_pipeline.h"

namespace lockstep {
namespace {

using enum OpKind;
using ::testing::HasSubstr;

double replayed(const PipelineTrace& trace) {
  const auto replay = TraceReplay::of(trace);
  EXPECT_TRUE(replay) << (replay ? "" : to_text(replay.errors()[0]));
  std::vector<double> durations;
  for (const TraceOp& op : trace.ops) durations.push_back(op.duration_us);
  return replay ? replay.value().mean_step_us(durations) : -1;
}

std::string why_not(const PipelineTrace& trace) {
  const auto replay = TraceReplay::of(trace);
  return replay ? "" : to_text(replay.errors()[0]);
}

TEST(TraceReplay, OneWorkerDoesOneThingAfterAnother) {
  MadePipeline made;
  made.add(0, 0, forward_compute, 10).add(0, 0, backward_compute, 20).add(0, 0, gc, 1);
  made.add(0, 0, layernorm_grads_all_reduce, 2).add(0, 0, embedding_grads_all_reduce, 3);
  made.add(0, 0, optimizer_clip_main_grad, 4).add(0, 0, optimizer, 5);
  EXPECT_DOUBLE_EQ(replayed(made.trace), 45);
}

// Forward 0 of stage 1 from 11 to 21, its backward to 41, forward 1 to 51 and backward 1 to 71;
// stage 0 has the gradient of it at 72.
TEST(TraceReplay, StagesWaitForEachOther) { EXPECT_DOUBLE_EQ(replayed(two_stages().trace), 92); }

TEST(TraceReplay, ATransferBeginsWithTheLaterSideAndEndsOnEachByItself) {
  MadePipeline made = two_stages();
  for (TraceOp& op : made.trace.ops)
    if (op.kind == forward_recv && op.sequence == 0) op.duration_us = 8;
  EXPECT_DOUBLE_EQ(replayed(made.trace), 99);
  for (TraceOp& op : made.trace.ops)
    if (op.kind == forward_send && op.sequence == 0) op.duration_us = 100;
  // Only the next send of that stage waits for it, at 110, and so forward 1 of stage 1.
  EXPECT_DOUBLE_EQ(replayed(made.trace), 111 + 10 + 20 + 1 + 20);
}

// Three forwards before the first backward, of which the second takes until 1010: only then is
// that gradient asked for. It takes 50, so that backward 0 begins at 1060 (and not when forward 2
// ends, at 1020); receive 1 begins when it ends, and receive 2 when backward 1 does.
TEST(TraceReplay, TheFirstGradientIsAskedForBeforeTheLastForward) {
  MadePipeline made;
  for (int64_t i = 0; i < 3; ++i) made.add(0, 0, forward_compute, i == 1 ? 1000 : 10, i);
  for (int64_t i = 0; i < 3; ++i) {
    made.add(0, 0, backward_compute, 20, i);
    made.add(0, 1, forward_compute, 10, i).add(0, 1, backward_compute, 20, i);
    made.add(0, 0, forward_send, 1, i).add(0, 1, forward_recv, 1, i);
    made.add(0, 1, backward_send, 1, i).add(0, 0, backward_recv, i == 0 ? 50 : 1, i);
  }
  EXPECT_DOUBLE_EQ(replayed(made.trace), 1060 + 20 + 1 + 20 + 1 + 20);
}

TEST(TraceReplay, RanksMeetToReduceAndToClip) {
  // Rank 1 is done with gc at 64; rank 2's part of the reduction takes to 114.
  EXPECT_DOUBLE_EQ(replayed(three_ranks().trace), 64 + 50 + 1 + 2);
}

TEST(TraceReplay, GivesTheMeanOverSteps) {
  MadePipeline made;
  made.add(0, 0, forward_compute, 10, 0, 1).add(0, 0, backward_compute, 20, 0, 1);
  made.add(0, 0, forward_compute, 30, 0, 2).add(0, 0, backward_compute, 20, 0, 2);
  EXPECT_DOUBLE_EQ(replayed(made.trace), 40);
}

TEST(TraceReplay, WhatIsMissingIsNamed) {
  const auto without = [](MadePipeline made, auto is_it) {
    std::erase_if(made.trace.ops, is_it);
    return why_not(made.trace);
  };
  EXPECT_THAT(
      without(two_stages(), [](auto& op) { return op.kind == forward_recv && op.sequence == 1; }),
      HasSubstr("step 1, data-parallel rank 0, stage 1: 1 forward-recv for 2 "
                "forward-compute; expected one for each, or none"));
  EXPECT_THAT(without(two_stages(), [](auto& op) { return op.kind == forward_recv; }),
              HasSubstr("stage 0: forward-send 0 has 1 of 2 that take part"));
  EXPECT_THAT(
      without(two_stages(), [](auto& op) { return op.kind == forward_send && op.sequence == 0; }),
      HasSubstr("stage 0: forward-send 0 is missing or there twice"));
  EXPECT_THAT(without(two_stages(),
                      [](auto& op) {
                        return op.kind == backward_compute && op.stage == 1 && op.sequence == 1;
                      }),
              HasSubstr("stage 1: 2 forward-compute and 1 backward-compute"));
  EXPECT_THAT(without(three_ranks(), [](auto& op) { return op.dp_rank == 1; }),
              HasSubstr("not all of 3 data-parallel ranks x 1 stages are in each of 1 steps"));
  EXPECT_THAT(without(three_ranks(),
                      [](auto& op) { return op.dp_rank == 1 && op.kind == grads_reduce_scatter; }),
              HasSubstr("grads-reduce-scatter 0 has 2 of 3 that take part"));
}

TEST(TraceReplay, WhatCannotBeExecutedIsRefused) {
  MadePipeline made;  // a backward before the forward that it needs
  made.add(0, 0, backward_compute, 1).add(0, 0, forward_compute, 1);
  made.add(0, 1, forward_compute, 1).add(0, 1, backward_compute, 1);
  made.add(0, 0, forward_send, 1).add(0, 1, forward_recv, 1);
  made.add(0, 1, backward_send, 1).add(0, 0, backward_recv, 1);
  EXPECT_THAT(why_not(made.trace), HasSubstr("operations wait for each other in a circle"));
}

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// Forwards are 20 us on average, reductions 5 in the median: 3 + 20 + 20 + 1 + 5 + 1 + 2 = 52.
TEST(PipelineSlowdown, OfOneSlowForwardAndOneSlowReduction) {
  const auto slowdown = slowdown_of(three_ranks().trace).value();
  EXPECT_DOUBLE_EQ(slowdown.step_ms, 0.117);
  EXPECT_DOUBLE_EQ(slowdown.ideal_ms, 0.052);
  EXPECT_DOUBLE_EQ(slowdown.slowdown, 117.0 / 52);
  EXPECT_THAT(slowdown.dp_ranks,
              ElementsAre(DoubleEq(1), DoubleEq(72.0 / 52), DoubleEq(97.0 / 52)));
  EXPECT_THAT(slowdown.stages, ElementsAre(DoubleEq(117.0 / 52)));
  ASSERT_EQ(slowdown.worst, 1u);
  EXPECT_EQ(slowdown.workers[0].dp_rank, 2);
  EXPECT_EQ(slowdown.workers[1].dp_rank, 1);
  EXPECT_DOUBLE_EQ(*slowdown.by_worst_workers, 45.0 / 65);  // rank 1 is still late by 20
  EXPECT_DOUBLE_EQ(*slowdown.by_last_stage, 1);
}

TEST(PipelineSlowdown, ALongLastStage) {
  MadePipeline made = two_stages();
  for (TraceOp& op : made.trace.ops)
    if (op.stage == 1 && is_compute(op.kind)) op.duration_us *= 3;
  const auto slowdown = slowdown_of(made.trace).value();
  // 11 + 4 x (30 + 60) / 2 + 1 + 20, and with 20 and 40: 21 + 120 + 1 + 40.
  EXPECT_DOUBLE_EQ(slowdown.step_ms, 0.212);
  EXPECT_DOUBLE_EQ(slowdown.ideal_ms, 0.182);
  EXPECT_GT(slowdown.stages[1], slowdown.stages[0]);
  EXPECT_EQ(slowdown.workers[0].stage, 1);
  EXPECT_GT(*slowdown.by_last_stage, 1);  // the other one is quicker than the mean
}

TEST(PipelineSlowdown, NothingIsLostWhereAllAreAlike) {
  const auto slowdown = slowdown_of(two_stages().trace).value();
  EXPECT_DOUBLE_EQ(slowdown.slowdown, 1);
  EXPECT_FALSE(slowdown.by_worst_workers);
  EXPECT_FALSE(slowdown.by_last_stage);
  EXPECT_TRUE(as_json(slowdown)["by_last_stage"].is_null());
}

TEST(PipelineSlowdown, OfNoTimeIsRefused) {
  MadePipeline made = two_stages();
  for (TraceOp& op : made.trace.ops) op.duration_us = 0;
  const auto slowdown = slowdown_of(made.trace);
  ASSERT_FALSE(slowdown);
  EXPECT_EQ(slowdown.errors()[0].message, "no operation takes any time");
}

// Ranks of several kinds: with a pause of garbage collection, in another order, each a little
// slower than the one before.
MadePipeline many_ranks(int64_t ranks, int64_t steps) {
  using enum OpKind;
  MadePipeline made;
  const auto add = [&](const TraceOp& op) { made.trace.ops.push_back(op); };
  for (int64_t step = 1; step <= steps; ++step)
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const double slow = 1 + static_cast<double>((rank * 7 + step) % 11) / 10;
      const bool other_order = rank % 5 == 1;
      add({step, rank, 0, params_all_gather, 0, 0, 3});
      add({step, rank, 0, forward_compute, 0, 1, 10 * slow});
      add({step, rank, 0, backward_compute, 0, other_order ? 3.0 : 2.0, 20 * slow});
      add({step, rank, 0, forward_compute, 1, other_order ? 2.0 : 3.0, 10});
      add({step, rank, 0, backward_compute, 1, 4, 20});
      if (rank % 3 == 0) add({step, rank, 0, gc, 0, 5, 4});
      add({step, rank, 0, grads_reduce_scatter, 0, 6, 5 + slow});
      add({step, rank, 0, optimizer_clip_main_grad, 0, 7, 1});
      add({step, rank, 0, optimizer, 0, 8, 2 * slow});
    }
  made.trace.steps = steps;
  made.trace.dp_ranks = ranks;
  made.trace.stages = 1;
  return made;
}

// Each rank's number is that of a replay of everything, whatever is taken together to get it.
TEST(PipelineSlowdown, OfEachRankIsAsIfAllWereReplayed) {
  for (const int64_t ranks : {1, 2, 3, 7, 16}) {
    const PipelineTrace trace = many_ranks(ranks, 3).trace;
    const TraceReplay replay = TraceReplay::of(trace).value();
    std::vector<double> own, usual;
    for (const TraceOp& op : trace.ops) {
      own.push_back(op.duration_us);
      usual.push_back(10 + static_cast<double>(op.kind));
    }
    const std::vector<double> only = replay.only_us(own, usual);
    ASSERT_EQ(only.size(), static_cast<size_t>(ranks));
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<double> durations = usual;
      for (size_t i = 0; i < durations.size(); ++i)
        if (trace.ops[i].dp_rank == rank) durations[i] = own[i];
      EXPECT_DOUBLE_EQ(only[static_cast<size_t>(rank)], replay.mean_step_us(durations)) << rank;
    }
  }
}

TEST(PipelineSlowdown, GrowsWithTheRanksAndNotWithTheirSquare) {
  const auto asked = [](int64_t ranks) {
    return [trace = many_ranks(ranks, 1).trace] { EXPECT_TRUE(slowdown_of(trace)); };
  };
  EXPECT_LE(growth_of(asked, 2000, 8), 8);
}

struct Published {
  const char* name;
  double slowdown, by_worst_workers, by_last_stage;
};

class PublishedTrace : public testing::TestWithParam<Published> {};

// golden/data/stragglers/README.md says who published them.
TEST_P(PublishedTrace, IsReproducedToFourDecimals) {
  const Published& published = GetParam();
  const std::string file =
      std::string(LOCKSTEP_SOURCE_DIR "/golden/data/stragglers/timeline-") + published.name;
  const auto trace = read_pipeline_trace(file + ".json.gz");
  ASSERT_TRUE(trace) << to_text(trace.errors()[0]);
  const auto slowdown = slowdown_of(trace.value());
  ASSERT_TRUE(slowdown) << to_text(slowdown.errors()[0]);
  const auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  EXPECT_DOUBLE_EQ(rounded(slowdown.value().slowdown), published.slowdown);
  EXPECT_DOUBLE_EQ(rounded(*slowdown.value().by_worst_workers), published.by_worst_workers);
  EXPECT_DOUBLE_EQ(rounded(*slowdown.value().by_last_stage), published.by_last_stage);
}

INSTANTIATE_TEST_SUITE_P(Stragglers, PublishedTrace,
                         testing::Values(Published{"AR", 1.9730, 1.0017, -0.0012},
                                         Published{"ST", 1.1787, 0.0314, 1.2194}),
                         [](const auto& test) { return test.param.name; });

}  // namespace

}  // namespace lockstep
