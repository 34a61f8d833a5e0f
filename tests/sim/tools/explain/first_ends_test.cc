#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// Which of several ends was the first, and which words are no end of the rank.

FlightFinding first_end_in(const std::string& text) { return attribute_job(evidence_of(text)); }

std::string raised_at(int64_t rank, const std::string& last) {
  const std::string prefix = "[rank" + std::to_string(rank) + "]: ";
  return prefix + "Traceback (most recent call last):\n" + prefix + "  File \"t.py\", line 3\n" +
         prefix + last + "\n";
}

std::string waited_in_vain(int64_t rank) {
  const std::string number = std::to_string(rank);
  return "[rank" + number + "]:[E1129 10:20:31.1 ProcessGroupNCCL.cpp:632] [Rank " + number +
         "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, "
         "NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600040 milliseconds before timing "
         "out.\n";
}

std::string lost_peer_at(int64_t rank) {
  return raised_at(rank, "torch.distributed.DistBackendError: NCCL error, remote process exited");
}

std::string table_row(const std::string& time, int64_t rank, int64_t code) {
  const std::string number = std::to_string(rank);
  return "  time      : 2025-11-29_10:21:" + time + "\n  rank      : " + number +
         " (local_rank: " + number + ")\n  exitcode  : " + std::to_string(code) + " (pid: 1" +
         number + ")\n";
}

std::string seen_first(int64_t rank, int64_t code, const std::string& later) {
  return "Sending process 10 closing signal SIGTERM\nfailed (exitcode: " + std::to_string(code) +
         ") local_rank: " + std::to_string(rank) + " (pid: 1" + std::to_string(rank) + ")\n" +
         later + "Root Cause (first observed failure):\n" + table_row("01", rank, code);
}

TEST(FirstEnds, APrefixBeforeWhatIsNoTracebackIsNotPyTorchsHook) {
  const std::string told = "[rank0]: 120 samples/s\n[rank1]: 121 samples/s\n";
  const std::string caught = raised_at(1, "ValueError: corrupt JPEG, skipping");
  const FlightFinding found =
      first_end_in(told + caught + told + waited_in_vain(0) + waited_in_vain(2));
  EXPECT_EQ(found.guilty, RankSet{});
  EXPECT_EQ(found.candidates.count(1), 1U);
  EXPECT_EQ(first_end_in(caught + waited_in_vain(0) + waited_in_vain(2)).guilty, RankSet{1});
  EXPECT_EQ(first_end_in(told + caught + waited_in_vain(0) + table_row("01", 1, 1)).guilty,
            RankSet{1})
      << "a launcher saw it end";
}

TEST(FirstEnds, TheTimesOfTheTableSayThatOthersAbortedLater) {
  EXPECT_EQ(first_end_in(seen_first(2, -9, table_row("05", 0, -6) + table_row("05", 1, -6))).guilty,
            RankSet{2});
  EXPECT_EQ(first_end_in(seen_first(2, -9, table_row("01", 0, -6))).guilty, RankSet{});
}

TEST(FirstEnds, WhoFailsInItsDestructorsWhenAPeerIsGoneIsNotNamed) {
  const std::string own = raised_at(3, "KeyError: 'x'");
  EXPECT_EQ(first_end_in(own + seen_first(3, 1, table_row("05", 1, -11))).guilty, RankSet{3});
  EXPECT_EQ(first_end_in(own + seen_first(3, 1, table_row("01", 1, -11))).guilty, RankSet{});
}

TEST(FirstEnds, WhoWasEndedBeforeAnybodyFailedIsACandidate) {
  const FlightFinding found =
      first_end_in(lost_peer_at(0) + "failed (exitcode: -15) local_rank: 2 (pid: 12)\n" +
                   "Root Cause (first observed failure):\n" + table_row("01", 2, -15));
  EXPECT_EQ(found.guilty, RankSet{});
  EXPECT_EQ(found.candidates, RankSet{2});
  EXPECT_EQ(found.victims, RankSet{0});
}

TEST(FirstEnds, ATaskOfSlurmsThatStartsRanksIsNone) {
  const std::string ended =
      "srun: error: n3: task 3: Killed\nsrun: Terminating StepId=9.0\nsrun: error: n0: tasks 0-2: "
      "Terminated\n";
  const std::string eighth = "[rank8]:[W1129 10:20:30.1 ProcessGroupNCCL.cpp:4561] using GPU 0\n";
  EXPECT_EQ(first_end_in(ended).guilty, RankSet{3});
  EXPECT_EQ(first_end_in(eighth + ended).guilty, RankSet{});
  EXPECT_FALSE(first_end_in(eighth + ended).decided);
  EXPECT_EQ(first_end_in("8: step 1\n8: " + eighth + ended).guilty, RankSet{3}) << "by srun -l";
}

TEST(FirstEnds, OfTwoFilesTorchrunsWordMakesLaunchersOfTasks) {
  JobEvidence job = evidence_of(
      "srun: error: n1: task 1: Exited with exit code 1\nsrun: error: n0: task 0: "
      "Killed\n");
  for (LogEvent& event : evidence_of(raised_at(6, "KeyError: 'x'") + seen_first(6, 1, "")).events) {
    event.file = "n1.log";
    job.events.push_back(std::move(event));
  }
  EXPECT_EQ(attribute_job(job).guilty, RankSet{6});
}

TEST(FirstEnds, AProgramOfTheRanksThatFellIsNotTheRank) {
  const std::string fell = "[1,2]<stderr>:sh: line 1: 47 Segmentation fault (core dumped) ffmpeg\n";
  EXPECT_EQ(first_end_in(fell).guilty, RankSet{2});
  EXPECT_EQ(first_end_in(fell + "[1,2]<stdout>:step 7 loss 0.5\n").guilty, RankSet{});
  EXPECT_EQ(first_end_in(fell + "[1,2]<stderr>:  File \"train_step.py\", line 3 in step\n").guilty,
            RankSet{2});
}

TEST(FirstEnds, WhatComposerKilledBlamesNotWhomItSawFirst) {
  EXPECT_EQ(first_end_in("ERROR:composer.cli.launcher:Rank 5 crashed with exit code -9.\n"
                         "ERROR:composer.cli.launcher:Global rank 0 (PID 7) exited with code -9\n")
                .guilty,
            RankSet{5});
}

TEST(FirstEnds, OfTheSameExceptionOfSeveralItIsToldThatTheyShareACause) {
  const auto missing_of = [](const std::string& a, const std::string& b) {
    return first_end_in(raised_at(0, a) + raised_at(1, b)).missing.at(0);
  };
  EXPECT_NE(missing_of("OSError: no file 7", "OSError: no file 8").find("raised the same"),
            std::string::npos);
  EXPECT_EQ(missing_of("OSError: no file 7", "KeyError: 'x'"), "which of them ended first");
}

TEST(FirstEnds, WhatNcclCouldNotDoForItselfIsNoLostPeer) {
  const std::string warn = "n1:10:20 [0] misc/ibvwrap.cc:100 NCCL WARN Call to ";
  EXPECT_EQ(first_end_in("[rank1]:" + warn + "ibv_open_device failed\n").victims, RankSet{});
  EXPECT_EQ(
      first_end_in("[rank1]:" + warn + "recv from 10.0.0.3<4> failed : Broken pipe\n").victims,
      RankSet{1});
  EXPECT_EQ(first_end_in("[rank1]:" + warn + "posix_fallocate failed : No space left on device\n" +
                         lost_peer_at(1) + lost_peer_at(0))
                .candidates,
            RankSet{1});
  const FlightFinding found = first_end_in(
      raised_at(1, "torch.distributed.DistBackendError: NCCL error, unhandled system error") +
      "[rank1]: ncclSystemError: System call or external library call failed.\n[rank1]: Last "
      "error:\n[rank1]: Error while creating shared memory segment /dev/shm/nccl-a (size 9)\n" +
      lost_peer_at(0));
  EXPECT_EQ(found.candidates, RankSet{1});
  EXPECT_EQ(found.victims, RankSet{0});
}

}  // namespace
}  // namespace lockstep
