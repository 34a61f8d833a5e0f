#include "sim/analysis/recorded_calls.h"

#include <gtest/gtest.h>

#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

Event event_of(EventKind kind, uint32_t sequence, int64_t time_ns, uint64_t value = 0) {
  return {time_ns, sequence, static_cast<uint16_t>(kind), static_cast<uint16_t>(Phase::backward), 1,
          -1,      value};
}

TEST(RecordedCalls, HasWhatARankCalledAndWhen) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 2;
  const auto calls = recorded_calls(run.make().ranks[1], 2);
  ASSERT_EQ(calls.size(), 2u * 3);
  EXPECT_EQ(calls[4].sequence, 5u);
  EXPECT_EQ(calls[4].operation, "all_reduce");
  EXPECT_EQ(calls[4].bucket, 1);
  EXPECT_EQ(calls[4].step, 2);
  EXPECT_STREQ(calls[4].type->word, "float32");
  EXPECT_EQ(calls[4].elements_in, 250'000);
  EXPECT_EQ(calls[4].started_ns, calls[4].called_ns);
  EXPECT_GT(calls[4].ended_ns, calls[4].started_ns);
}

TEST(RecordedCalls, ElementsAreTheRanksOwn) {
  RankRecords records;
  // Operation, as in reducer/probe.h, then elements in and out.
  const std::vector<std::array<int64_t, 3>> expected = {{1, 8, 8}, {2, 8, 8}, {3, 2, 8}, {4, 8, 2},
                                                        {5, 8, 2}, {6, 2, 8}, {7, 0, 0}};
  for (const auto& [operation, in, out] : expected)
    records.events.push_back(event_of(EventKind::arrival, static_cast<uint32_t>(operation), 1,
                                      pack_collective(static_cast<uint8_t>(operation), 7, 64)));
  const auto calls = recorded_calls(records, 4);
  ASSERT_EQ(calls.size(), expected.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].elements_in, expected[i][1]) << calls[i].operation;
    EXPECT_EQ(calls[i].elements_out, expected[i][2]) << calls[i].operation;
  }
}

TEST(RecordedCalls, WhereAQueueIsRecordedWhatDidNotLeaveItHasNotStarted) {
  RankRecords records;
  for (uint32_t sequence : {1u, 2u})
    records.events.push_back(
        event_of(EventKind::arrival, sequence, sequence, pack_collective(1, 6, 4)));
  EXPECT_TRUE(recorded_calls(records, 2)[1].started_ns);
  records.events.push_back(event_of(EventKind::launched, 1, 5));
  const auto calls = recorded_calls(records, 2);
  EXPECT_EQ(calls[0].started_ns, 5);
  EXPECT_FALSE(calls[1].started_ns);
  EXPECT_FALSE(calls[0].ended_ns);
}

TEST(RecordedCalls, LeavesOutTheDoubleRunAndWhatIsNoOperation) {
  RankRecords records;
  records.events = {event_of(EventKind::arrival, 1, 1, pack_collective(99, 6, 4)),
                    event_of(EventKind::end, 7, 2), event_of(EventKind::double_run, 0, 3),
                    event_of(EventKind::arrival, 1, 4, pack_collective(1, 6, 4))};
  EXPECT_TRUE(recorded_calls(records, 2).empty());
}

}  // namespace
}  // namespace lockstep
