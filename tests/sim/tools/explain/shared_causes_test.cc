#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/tools/explain/log_event.h"
#include "sim/tools/explain/log_source.h"
#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// What one rank raises and another caused, and whose an exception is that has no name before it.

std::string raised_shared(const std::string& prefix, const std::string& last) {
  return prefix + "Traceback (most recent call last):\n" + prefix +
         "  File \"train.py\", line 8, in step\n" + prefix + last + "\n";
}

std::string part_of_table(int64_t rank, int64_t code) {
  return "  time      : 2026-05-21_15:43:03\n  rank      : " + std::to_string(rank) +
         " (local_rank: " + std::to_string(rank) + ")\n  exitcode  : " + std::to_string(code) +
         " (pid: 4711)\n";
}

std::string table_with(const std::string& others, int64_t rank) {
  return "failed (exitcode: 1) local_rank: " + std::to_string(rank) +
         " (pid: 4711) of binary: python\nFailures:\n" + others +
         "Root Cause (first observed failure):\n[0]:\n" + part_of_table(rank, 1);
}

const std::string kTimedOut =
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n";

FlightFinding shared_in(const std::string& text) { return attribute_job(evidence_of(text)); }

// A gradient that is no number reaches all ranks by the next all-reduce.
TEST(SharedCauses, WhoFindsThatALossIsNoNumberNeedNotBeWhoseItWas) {
  for (const char* last :
       {"FloatingPointError: Loss became infinite or NaN at iteration=620!",
        "FloatingPointError: Minimum loss scale reached (0.0001).",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore.",
        "ValueError: loss is nan", "RuntimeError: gradients are Nan/Inf",
        "RuntimeError: The total norm for gradients is non-finite, so it cannot be clipped."}) {
    const FlightFinding found = shared_in(raised_shared("[rank2]: ", last));
    EXPECT_FALSE(found.decided) << last;
    EXPECT_EQ(found.candidates, RankSet{2}) << last;
  }
  for (const char* last : {"ValueError: infer the shape", "KeyError: 'nanosecond'",
                           "TypeError: info() takes no arguments", "ValueError: finance"})
    EXPECT_EQ(shared_in(raised_shared("[rank2]: ", last)).guilty, RankSet{2}) << last;
}

TEST(SharedCauses, AKernelThatRanTooLongIsItsRanks) {
  const FlightFinding found = shared_in(raised_shared(
      "[rank2]: ", "RuntimeError: CUDA error: the launch timed out and was terminated"));
  EXPECT_EQ(found.guilty, RankSet{2});
}

TEST(SharedCauses, APeerMayHoldALock) {
  const FlightFinding found = shared_in(raised_shared(
      "[rank2]: ", "filelock._error.Timeout: The file lock 'a.lock' could not be acquired."));
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, RankSet{2});
}

TEST(SharedCauses, AWorkerOfTheDataLoaderHasNoPeers) {
  EXPECT_EQ(shared_in(raised_shared("[rank2]: ",
                                    "ConnectionError: Caught ConnectionError in DataLoader "
                                    "worker process 0."))
                .guilty,
            RankSet{2});
}

TEST(SharedCauses, AServerThatAnswersTooLateIsNoPeerThatIsLost) {
  const auto in_file = [](const std::string& file) {
    return shared_in("[rank2]: Traceback (most recent call last):\n[rank2]:   File \"" + file +
                     "\", line 8, in read\n[rank2]: TimeoutError: The read operation timed out\n");
  };
  EXPECT_EQ(in_file("lib/python3.12/ssl.py").candidates, RankSet{2});
  EXPECT_EQ(in_file("lib/python3.12/multiprocessing/pool.py").victims, RankSet{2});
}

const std::string kSpawned = "-- Process 1 terminated with the following error:\n" +
                             raised_shared("", "ValueError: bad sample");

TEST(Spawned, ItsNumbersAreRanksWhereNothingTellsOfMoreThanANode) {
  EXPECT_EQ(shared_in(kSpawned).guilty, RankSet{1});
  EXPECT_EQ(shared_in("[rank0]:[E " + kTimedOut + kSpawned).guilty, RankSet{1});
}

TEST(Spawned, ItsNumbersCountTheProcessesOfOneOfSeveralNodes) {
  for (const std::string& before :
       {"[rank12]:[E " + kTimedOut, std::string("All distributed processes registered. Starting "
                                                "with 16 processes\n")}) {
    const FlightFinding found = shared_in(before + kSpawned);
    EXPECT_FALSE(found.decided) << before;
    EXPECT_TRUE(found.candidates.empty()) << before;
  }
}

TEST(Spawned, TwoFilesThatTellOfOneAreOfTwoNodes) {
  JobEvidence job;
  add_log(&job, kSpawned, "node0.log");
  doubt_spawned(&job.events);
  EXPECT_EQ(job.events.at(0).rank, 1);
  add_log(&job, kSpawned, "node1.log");
  doubt_spawned(&job.events);
  for (const LogEvent& event : job.events) EXPECT_EQ(event.rank, -1);
}

// To 2.1 PyTorch wrote no rank before a traceback.
TEST(UnclaimedTraceback, IsThatOfTheOneRankThatFailed) {
  const std::string own = raised_shared("", "ValueError: bad sample");
  const FlightFinding found = shared_in(own + table_with("  <NO_OTHER_FAILURES>\n", 2));
  EXPECT_EQ(found.guilty, RankSet{2});
  ASSERT_FALSE(found.evidence.empty());
  EXPECT_NE(found.evidence.front().find("ValueError: bad sample"), std::string::npos);
  EXPECT_EQ(shared_in(own + table_with("[1]:\n" + part_of_table(1, -15), 2)).guilty, RankSet{2});
}

TEST(UnclaimedTraceback, IsThatOfTheOneRankWhoseEndALauncherSaw) {
  const std::string own = raised_shared("", "ValueError: bad sample");
  EXPECT_EQ(shared_in(own + "srun: error: n1: task 3: Exited with exit code 1\n").guilty,
            RankSet{3});
  EXPECT_EQ(shared_in(own + "The first process to do so was:\n\n  Process name: [[2,1],3]\n  Exit "
                            "code:    1\n")
                .guilty,
            RankSet{3});
  EXPECT_FALSE(shared_in(own + "srun: error: n1: tasks 3-4: Exited with exit code 1\n").decided);
}

TEST(UnclaimedTraceback, IsNobodysWhereTrainingWentOn) {
  const std::string own = raised_shared("", "ImportError: no fast kernels");
  const auto after = [&](int64_t steps) {
    std::string text = own;
    for (int64_t step = 0; step < steps; ++step)
      text += "step " + std::to_string(step) + " loss 2\n";
    return shared_in(text + table_with("  <NO_OTHER_FAILURES>\n", 2)).guilty;
  };
  EXPECT_EQ(after(2), RankSet{2});
  EXPECT_EQ(after(9), RankSet{});
}

TEST(UnclaimedTraceback, IsNobodysWhereItMayBeAnothers) {
  const std::string own = raised_shared("", "ValueError: bad sample");
  const std::string alone = table_with("  <NO_OTHER_FAILURES>\n", 2);
  for (const std::string& text :
       {own + own + alone,                                    // of two
        own + table_with("[1]:\n" + part_of_table(1, 1), 2),  // another failed, too
        own + "[E " + kTimedOut + alone,                      // somebody waited
        raised_shared("", "RuntimeError: NCCL error: remote process exited") + alone,
        own + raised_shared("[rank2]: ", "RuntimeError: NCCL error: remote process exited") +
            alone}) {
    EXPECT_TRUE(shared_in(text).guilty.empty()) << text;
  }
  // What the rank itself is known to have raised is the reason, not what somebody caught before.
  const FlightFinding told = shared_in(own + raised_shared("[rank2]: ", "KeyError: 'a'") + alone);
  EXPECT_EQ(told.guilty, RankSet{2});
  EXPECT_NE(told.evidence.front().find("KeyError"), std::string::npos);
}

TEST(BareExceptions, AreThoseOfTheRankBeforeThem) {
  const FlightFinding lost =
      shared_in("[rank1]: torch.distributed.DistBackendError: NCCL error in: x, invalid usage\n");
  EXPECT_EQ(lost.candidates, RankSet{1});
  EXPECT_EQ(shared_in("[rank1]: ConnectionResetError: [Errno 104] reset\n").victims, RankSet{1});
  EXPECT_FALSE(shared_in("[rank1]: ValueError: bad sample\n").decided);
  // The rest of a message that was read.
  const FlightFinding raised_one = shared_in(raised_shared("[rank1]: ", "ValueError: bad sample") +
                                             "[rank1]: ConnectionError: as said above\n");
  EXPECT_EQ(raised_one.guilty, RankSet{1});
}

TEST(Analyzed, WhomTorchfrtraceMissesIsACandidate) {
  const FlightFinding found = shared_in(
      "Not all ranks joining collective, sequence number: 31\ncollective: nccl:all_reduce\nmissing "
      "ranks: {3, 5}\nexpected ranks: {0, 1, 2, 3, 4, 5}\n");
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, (RankSet{3, 5}));
}

}  // namespace
}  // namespace lockstep
