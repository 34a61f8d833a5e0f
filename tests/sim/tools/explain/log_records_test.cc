#include "sim/tools/explain/log_record.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// What vLLM and the logs of libraries (glog, absl) put before a line.

std::string each_behind(const std::string& prefix, const std::string& text) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) all += prefix + line + "\n";
  return all;
}

const std::string kRaised =
    "WorkerProc hit an exception.\nTraceback (most recent call last):\n"
    "  File \"vllm/v1/executor/multiproc_executor.py\", line 517, in worker_busy_loop\n"
    "    output = func(*args, **kwargs)\n             ^^^^^^^^^^^^^^^^^^^^^\n"
    "ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)\n";
const std::string kDied =
    "ERROR 07-04 17:35:16 [multiproc_executor.py:140] Worker proc VllmWorker-2 died "
    "unexpectedly, shutting down executor.\n";

std::string worker(int64_t rank, const std::string& text) {
  return each_behind("(VllmWorker rank=" + std::to_string(rank) + " pid=40" + std::to_string(rank) +
                         ") ERROR 07-23 19:34:51 [multiproc_executor.py:487] ",
                     text);
}

std::string assigned(int64_t worker, int64_t rank) {
  return "\x1b[1;36m(VllmWorker rank=" + std::to_string(worker) + " pid=21" +
         std::to_string(worker) + ")\x1b[0;0m INFO 08-31 14:42:32 [parallel_state.py:1076] rank " +
         std::to_string(rank) + " in world size 8 is assigned as DP rank " +
         std::to_string(rank / 4) + ", PP rank 0, TP rank 0, EP rank 0\n";
}

FlightFinding found_in(const std::string& text) { return attribute_job(evidence_of(text)); }

TEST(LogRecords, WorkersOfVllmAreKnownByTheirNumber) {
  for (const char* line :
       {"(VllmWorker rank=3 pid=406) ERROR 07-23 19:34:51 [multiproc_executor.py:487] x",
        "\x1b[1;36m(VllmWorker rank=3 pid=406)\x1b[0;0m WARNING 02-17 14:48:01 utils.py:37] x",
        "(EngineCore_0 pid=7) (VllmWorker rank=3 pid=406) x", "(Worker_TP3 pid=1610) x",
        "(VllmWorker rank=1 pid=9) (VllmWorker rank=3 pid=406) x", "(Worker_TP3_EP3 pid=1610) x",
        "0: (VllmWorker rank=3 pid=406) x", "worker-1  | (VllmWorker rank=3 pid=406) x"}) {
    const LogPrefix prefix = log_prefix(line);
    EXPECT_EQ(prefix.rank, 3) << line;
    EXPECT_TRUE(prefix.local()) << line;
    EXPECT_EQ(prefix.rest, "x") << line;
  }
  for (const char* line :
       {"(EngineCore_DP3 pid=7) x", "(Worker_DP0_TP3_EP3 pid=7) x", "(Worker_PP1_TP3 pid=7) x",
        "(RayWorkerWrapper rank=3 pid=7) x", "(VllmWorker rank= pid=7) x", "(VllmWorker rank=3) x",
        "rank=3 x", "(VllmWorker rank=1 pid=9) (EngineCore_0 pid=7) x"})
    EXPECT_EQ(log_prefix(line).rank, -1) << line;
}

// Its engine sees which one ends; of what vLLM caught nobody is named.
TEST(LogRecords, AWorkerOfVllmIsNamedWhereItsNumberIsARank) {
  const std::string ended = worker(2, kRaised) + kDied;
  EXPECT_FALSE(found_in(ended).decided) << "of which engine?";
  const FlightFinding first = found_in(assigned(2, 2) + ended);
  EXPECT_EQ(first.guilty, RankSet{2});
  const FlightFinding second = found_in(assigned(0, 4) + assigned(2, 6) + ended);
  EXPECT_EQ(second.guilty, RankSet{6});
  EXPECT_FALSE(found_in(assigned(2, 2) + worker(2, kRaised)).decided);
  EXPECT_FALSE(found_in(assigned(0, 0) + assigned(0, 4) + ended).decided) << "two engines";
  EXPECT_FALSE(found_in(assigned(0, 0) + ended + worker(1, kRaised)).decided);
}

TEST(LogRecords, LevelsOfLibraries) {
  for (const char* line :
       {"E1128 12:00:00.123456   456 ProcessGroupNCCL.cpp:616] x",
        "E20251128 12:00:00.123456 456 x.cc:1] x", "E1128 12:00:00.123 456 x.cc:1] ",
        "E0000 00:00:1748984972.387319  812986 cuda_dnn.cc:8579] Unable to register cuDNN factory",
        "[E1001 16:06:04.537131842 ProcessGroupNCCL.cpp:607] [Rank 2] x",
        "[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] x", "[E ProcessGroupNCCL.cpp:563] x"})
    EXPECT_EQ(native_level(line), 'E') << line;
  EXPECT_EQ(native_level("F0101 00:00:00.1 1 a.cc:1] Check failed: x"), 'F');
  for (const char* line :
       {"", "E", "E1128", "Error: x", "E1128 12:00 x.cc:1] x", "[E x.cc 1] x", "[E: x.cc:1] x",
        "E1128 12:00:00.123 456 Epoch 1: loss [3:4] x", "X1128 12:00:00.1 4 x.cc:1] x"})
    EXPECT_EQ(native_level(line), '\0') << line;
}

// What another thread logs in between does not end a traceback.
TEST(LogRecords, LinesOfLibrariesWithinATracebackAreNotOfIt) {
  for (const char* line :
       {"[rank1]: E0000 00:00:1748984972.387319  812986 cuda_dnn.cc:8579] Unable to register",
        "[rank1]:W1128 12:00:00.123456   456 ProcessGroupNCCL.cpp:616] x",
        "[rank1]:[W1001 16:06:04.537131842 x.cpp:607] Warning: x"}) {
    const FlightFinding found =
        found_in("[rank1]: Traceback (most recent call last):\n" + std::string(line) +
                 "\n[rank1]:   File \"train.py\", line 8\n[rank1]: ValueError: x\n");
    EXPECT_EQ(found.guilty, RankSet{1}) << line;
  }
}

TEST(LogRecords, AFailedCheckEndsItsProcessForAReasonOfItsOwnOrAPeers) {
  const FlightFinding fatal =
      found_in("[rank2]:F1128 12:00:00.123456   456 pair.cc:12] Check failed: nread >= 0 \n");
  EXPECT_FALSE(fatal.decided);
  EXPECT_EQ(fatal.candidates, RankSet{2});
  const FlightFinding logged =
      found_in("[rank2]:E1128 12:00:00.123456   456 pair.cc:12] Check failed: nread >= 0 \n");
  EXPECT_EQ(logged.candidates, RankSet{});
}

std::string time_out(int64_t rank) {
  return "E1128 12:00:00.123456   456 ProcessGroupNCCL.cpp:616] [Rank " + std::to_string(rank) +
         "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, "
         "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing "
         "out.\n";
}

// glog writes no "[rank5]:", and PyTorch's own "[Rank 1]" counts within the group.
TEST(LogRecords, ARankWithinAGroupIsNoRankOfTheJob) {
  EXPECT_EQ(found_in(time_out(1)).victims, RankSet{1});
  const auto progress = [](const std::string& group) {
    return "E1128 12:00:00.123456   456 ProcessGroupNCCL.cpp:1785] [PG ID 1 PG GUID " + group +
           " Rank 1] last enqueued NCCL work: 5, last completed NCCL work: 4.\n";
  };
  EXPECT_EQ(found_in(time_out(1) + progress("0(default_pg)")).victims, RankSet{1});
  const FlightFinding found = found_in(time_out(1) + progress("7(mesh_tp)"));
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.victims, RankSet{});
}

}  // namespace
}  // namespace lockstep
