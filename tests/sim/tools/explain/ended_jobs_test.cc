#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "sim/tools/explain/job_attribution.h"
#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// What ranks say while somebody else ends them, and words that only look like an end.

FlightFinding of_one_log(const std::string& text, int64_t rank = -1) {
  JobEvidence job;
  add_log(&job, text, "job.log", rank);
  return attribute_job(job);
}

const std::string kLoaderGone =
    "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"train.py\", line 8, in fetch\n"
    "[rank3]: RuntimeError: DataLoader worker (pid(s) 3301) exited unexpectedly\n";
const std::string kJobCancelled =
    "slurmstepd: error: *** JOB 47 ON gpu-7 CANCELLED AT 2025-11-29T10:20:30 DUE TO PREEMPTION "
    "***\n";
const std::string kWaitedInVain =
    "[rank1]:[E1129 10:20:31 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
    "Timeout(ms)=600000) ran for 600040 milliseconds before timing out.\n";

TEST(EndedJobs, WhatARankRaisesAfterTheEndOfItsJobIsNotItsOwnEnd) {
  for (const std::string& end :
       {kJobCancelled,
        std::string("W1129 10:20:30.100 40 torch/distributed/elastic/agent/server/api.py:719] "
                    "Received Signals.SIGTERM death signal, shutting down workers\n"),
        std::string("WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, "
                    "shutting down workers\n"),
        std::string("[rank1]: Traceback (most recent call last):\n[rank1]: KeyboardInterrupt\n")}) {
    const FlightFinding found = of_one_log(end + kLoaderGone);
    EXPECT_EQ(found.guilty, RankSet{}) << end;
    EXPECT_FALSE(found.decided) << end;
    EXPECT_EQ(found.candidates, RankSet{}) << end;
    EXPECT_EQ(of_one_log(kLoaderGone + end).guilty, RankSet{3}) << "it came first: " << end;
  }
}

TEST(EndedJobs, OfTwoFilesTheOrderIsNotKnown) {
  JobEvidence job;
  add_log(&job, kLoaderGone, "rank_3.log", 3);
  add_log(&job, kJobCancelled, "slurm.out");
  const FlightFinding found = attribute_job(job);
  EXPECT_EQ(found.guilty, RankSet{});
  EXPECT_EQ(found.candidates, RankSet{3});
  add_log(&job, kWaitedInVain, "rank_1.log", 1);
  EXPECT_EQ(attribute_job(job).guilty, RankSet{3}) << "somebody waited for long before";
}

TEST(EndedJobs, ALauncherThatSawTheRankEndTellsMoreThanAnotherThatWasStopped) {
  JobEvidence job;
  add_log(&job, kLoaderGone + "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 7)\n",
          "node0.log");
  add_log(&job, "Received 15 death signal, shutting down workers\n", "node1.log");
  EXPECT_EQ(attribute_job(job).guilty, RankSet{3});
}

TEST(EndedJobs, SlurmsWordOfMemoryIsNotThatOfTheTaskInWhoseFileItStands) {
  const FlightFinding found = of_one_log(
      "step 3\nslurmstepd: error: Detected 1 oom_kill event in StepId=881.0. Some of the "
      "step tasks have been OOM Killed.\n",
      0);
  EXPECT_EQ(found.guilty, RankSet{});
  EXPECT_FALSE(found.decided);
}

TEST(EndedJobs, AProgramMayWriteKubernetesWord) {
  for (const char* line : {"config: {'retry_on': ['OOMKilled']}\n", "will restart if OOMKilled\n"})
    EXPECT_EQ(of_one_log(line, 2).candidates, RankSet{}) << line;
  for (const char* line :
       {"      Reason:       OOMKilled\n", "\"reason\": \"OOMKilled\"\n",
        "worker-3   0/1     OOMKilled   0          10m\n", "    reason: OOMKilled\n"}) {
    const FlightFinding found = of_one_log(line, 2);
    EXPECT_EQ(found.guilty, RankSet{}) << line;
    ASSERT_EQ(found.missing.size(), 1U) << line;
    EXPECT_NE(found.missing.front().find("which rank ended"), std::string::npos) << line;
  }
}

TEST(EndedJobs, AProcessThatEndsMayHaveNoDriverAnyMore) {
  const std::string watchdog =
      "[rank2]:[E1129 10:30:01.1 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank "
      "2] Process group watchdog thread terminated with exception: CUDA error: ";
  EXPECT_EQ(of_one_log(watchdog + "driver shutting down\n").guilty, RankSet{});
  EXPECT_EQ(of_one_log(watchdog + "uncorrectable ECC error encountered\n").guilty, RankSet{2});
  EXPECT_EQ(of_one_log("[rank2]: Traceback (most recent call last):\n[rank2]: RuntimeError: CUDA "
                       "error: driver shutting down\n")
                .guilty,
            RankSet{});
}

// Ranks 2 and 3 are behind in the group of all. One of them may wait for the other in a group of
// which no log tells.
TEST(EndedJobs, OfTwoThatAreBehindByTheirLogsAloneNobodyIsNamed) {
  for (const int64_t behind : {1, 2}) {
    JobEvidence job;
    for (int64_t rank = 0; rank < 5; ++rank) {
      const bool came = rank < 2 || rank >= 2 + behind;
      const std::string number = std::to_string(rank);
      add_log(&job,
              "[rank" + number + "]:[E1129 10:20:31 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG " +
                  "GUID 0(default_pg) Rank " + number + "] " +
                  (came ? "Timeout at NCCL work: 9, last enqueued NCCL work: 9, last "
                          "completed NCCL work: 8.\n"
                        : "Received a dump signal. Last enqueued NCCL work: 8, last completed "
                          "NCCL work: 8.\n"),
              "rank_" + number + ".log", rank);
    }
    const FlightFinding found = attribute_job(job);
    EXPECT_EQ(found.guilty, behind == 1 ? RankSet{2} : RankSet{});
    EXPECT_EQ(found.candidates, behind == 1 ? RankSet{} : (RankSet{2, 3}));
  }
}

// It was asked for its dump, and came to what the others wait in.
TEST(EndedJobs, WhoTellsHowFarItWasIsNotSilent) {
  JobEvidence job;
  for (int64_t rank = 0; rank < 3; ++rank) {
    FlightDump dump;
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", std::make_shared<const std::vector<int64_t>>(
                                          std::initializer_list<int64_t>{0, 1, 2, 3})};
    dump.status["0"] = {9, 8};
    FlightEntry entry;
    entry.group = "0";
    entry.sequence = 9;
    entry.operation = "all_reduce";
    dump.entries.push_back(entry);
    job.dumps.push_back(dump);
    std::string line = kWaitedInVain;
    for (size_t at = line.find("ank1"); at != std::string::npos; at = line.find("ank1", at + 1))
      line[at + 3] = static_cast<char>('0' + rank);
    add_log(&job, line, "rank_" + std::to_string(rank) + ".log", rank);
  }
  add_log(&job,
          "[rank3]:[E1129 10:20:31 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0(default_pg) Rank "
          "3] Received a dump signal due to a collective timeout from  rank 1 and we will try our "
          "best to dump the debug info. Last enqueued NCCL work: 9, last completed NCCL work: "
          "8.\n",
          "rank_3.log", 3);
  const FlightFinding found = attribute_job(job);
  EXPECT_EQ(found.guilty, RankSet{});
  EXPECT_FALSE(found.decided);
}

}  // namespace
}  // namespace lockstep
