#include "sim/judge/foreign/replay.h"

#include <gmock/gmock.h>

#include "tests/sim/judge/foreign/made_pipeline.h"

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

}  // namespace
}  // namespace lockstep
