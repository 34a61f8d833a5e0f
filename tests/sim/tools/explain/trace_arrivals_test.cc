#include "sim/tools/explain/trace_arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/tools/explain/report.h"
#include "tests/sim/tools/explain/made_traces.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Explained {
  FlightFinding finding;
  SourcesRead read;
};

Explained explained(const std::vector<MadeTrace>& made) {
  Explained answer;
  std::vector<KinetoTrace> traces;
  for (const MadeTrace& one : made) {
    const auto trace = kineto_trace_of(one.text(), "trace.json");
    EXPECT_TRUE(trace);
    if (!trace) return answer;
    traces.push_back(trace.value());
    answer.read.traces.push_back(share_of(traces.back()));
  }
  find_late_in_traces(traces, &answer.read.traces, &answer.finding);
  return answer;
}

// Clocks are 7 s apart; the ends of collectives tell.
TEST(TraceArrivals, TheLateRankIsNamed) {
  for (const int64_t world_size : {2, 3, 6}) {
    for (const int64_t late : {int64_t{0}, world_size - 1}) {
      const Explained found =
          explained(MadeTraces{.world_size = world_size, .late = late, .late_ms = 15}.make());
      EXPECT_THAT(found.finding.guilty, ElementsAre(late)) << world_size;
      EXPECT_EQ(found.finding.kind, FlightClass::straggler);
      EXPECT_NEAR(found.finding.lateness_ms.value_or(0), 15, 2);
      for (const TraceShare& share : found.read.traces) {
        if (share.rank == late)
          EXPECT_LT(share.waiting_ms.value(), 5);
        else
          EXPECT_GT(share.waiting_ms.value(), 12);
      }
    }
  }
}

// Of a pipeline's stages one is last in each step by design.
TEST(TraceArrivals, WhoSendsAndReceivesMayBeAStage) {
  auto made = MadeTraces{.late = 0, .late_ms = 15}.make();
  made[0].kernel("ncclDevKernel_SendRecv(ncclDevKernelArgs)", 1e5, 1.1e5,
                 R"("Collective name": "send", "Process Group Name": "1")");
  const Explained found = explained(made);
  EXPECT_FALSE(found.finding.decided);
  EXPECT_THAT(found.finding.candidates, ElementsAre(0));
}

TEST(TraceArrivals, NobodyIsAccusedWhereAllAreAsFast) {
  for (const double jitter_ms : {0.1, 1.0, 4.0}) {
    const Explained found = explained(MadeTraces{.world_size = 4, .jitter_ms = jitter_ms}.make());
    EXPECT_TRUE(found.finding.guilty.empty());
    EXPECT_EQ(explain_code(found.finding), found.finding.decided ? 0 : 3);
  }
  EXPECT_EQ(explain_code(explained(MadeTraces{}.make()).finding), 0);
}

TEST(TraceArrivals, ATraceMayBeginSomeCallsLater) {
  const MadeTraces made{.late = 1, .late_ms = 15, .left_out = {0, 3, 2}};
  EXPECT_THAT(explained(made.make()).finding.guilty, ElementsAre(1));
}

TEST(TraceArrivals, OneTraceTellsNotWhoWaits) {
  auto made = MadeTraces{.late = 1, .late_ms = 15}.make();
  made.resize(1);
  const Explained found = explained(made);
  EXPECT_FALSE(found.finding.decided);
  EXPECT_THAT(found.finding.missing, ElementsAre(HasSubstr("traces of the other ranks")));
  EXPECT_FALSE(found.read.traces[0].waiting_ms);
}

TEST(TraceArrivals, OfSomeRanksNobodyIsNamed) {
  auto made = MadeTraces{.world_size = 4, .late = 1, .late_ms = 15}.make();
  made.pop_back();
  const Explained found = explained(made);
  EXPECT_FALSE(found.finding.decided);
  EXPECT_THAT(found.finding.candidates, ElementsAre(1));
  EXPECT_THAT(found.finding.missing, ElementsAre(HasSubstr("the traces of 1 rank")));
}

TEST(TraceArrivals, FewStepsTellNothing) {
  const Explained found = explained(MadeTraces{.steps = 3, .late = 1, .late_ms = 15}.make());
  EXPECT_FALSE(found.finding.decided);
  EXPECT_THAT(found.finding.missing, ElementsAre(HasSubstr("more steps")));
}

TEST(TraceArrivals, OtherCallsAreNotCompared) {
  auto made = MadeTraces{.world_size = 3, .late = 1, .late_ms = 15}.make();
  made[2].all_reduce(2e7, 2.1e7, 99);
  for (int64_t call = 0; call < 20; ++call)
    made[2].all_reduce(2.2e7 + 1e5 * static_cast<double>(call),
                       2.21e7 + 1e5 * static_cast<double>(call), 5);
  made[2].all_reduce(1, 2, 4);  // in between
  auto other = MadeTraces{.world_size = 3}.make();
  other[1] = MadeTrace(1, 3).all_reduce(0, 1, 77).all_reduce(2, 3, 78);
  const Explained found = explained(other);
  EXPECT_FALSE(found.finding.decided);
  EXPECT_THAT(found.finding.missing.front(), HasSubstr("the same calls on all ranks"));
}

TEST(TraceArrivals, EndsThatAreApartTellNoClock) {
  const Explained found =
      explained(MadeTraces{.late = 1, .late_ms = 8, .ends_apart_ms = 20}.make());
  EXPECT_TRUE(found.finding.guilty.empty());
  EXPECT_FALSE(found.finding.decided);
}

TEST(TraceArrivals, NumbersPairCallsWhereTheyAreThere) {
  std::vector<MadeTrace> made;
  for (int64_t rank = 0; rank < 2; ++rank) {
    MadeTrace one(rank, 2);
    for (int64_t call = rank == 0 ? 0 : 2; call < 12; ++call) {
      const double begin = 1e5 * static_cast<double>(call) + (rank == 0 ? 0 : 3e4);
      one.kernel("ncclKernel_AllReduce", begin, 1e5 * static_cast<double>(call) + 4e4,
                 R"("Process Group Name": "0", "Seq": )" + std::to_string(call));
    }
    made.push_back(one);
  }
  EXPECT_THAT(explained(made).finding.guilty, ElementsAre(1));
}

TEST(TraceArrivals, TheTableSaysWhatTheJsonHolds) {
  const Explained found = explained(MadeTraces{.late = 1, .late_ms = 15}.make());
  const std::string text = explain_text(found.finding, found.read);
  EXPECT_THAT(
      text,
      HasSubstr("  rank steps   step ms compute ms   comm ms exposed ms  overlap waiting ms\n"));
  EXPECT_THAT(text, HasSubstr("rank 1 is a straggler"));
  const auto json = explain_json(found.finding, found.read, "");
  EXPECT_EQ(json["traces"].size(), 3u);
  EXPECT_EQ(json["traces"][1]["rank"], 1);
  EXPECT_EQ(json["traces"][1]["steps"], 10);
}

}  // namespace
}  // namespace lockstep
