#include <gtest/gtest.h>

#include <sstream>

#include "sim/tools/explain/file_rank.h"
#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/log_lines.h"
#include "sim/tools/explain/log_source.h"

namespace lockstep {
namespace {

// Whose a line is: what several launchers, containers and nodes do to it, and what must not be
// taken for a rank.

LogOf read(const std::string& text, int64_t rank = -1, const std::string& name = "job.log") {
  return log_of(text, name, rank);
}

FlightFinding attribute_logs(std::vector<LogOf> logs) {
  JobEvidence job;
  job.logs = static_cast<int64_t>(logs.size());
  for (LogOf& log : logs) {
    job.logged.insert(log.ranks.begin(), log.ranks.end());
    for (LogEvent& event : log.events) job.events.push_back(std::move(event));
  }
  return attribute_job(job);
}

// Each line of `text` behind `prefix`.
std::string behind(const std::string& prefix, const std::string& text) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) all += prefix + line + "\n";
  return all;
}

std::string traceback_of(const std::string& prefix, const std::string& exception) {
  return behind(prefix,
                "Traceback (most recent call last):\n  File \"train.py\", line 8\n" + exception);
}

const std::string kLost = "torch.distributed.DistBackendError: NCCL error: remote process exited";

std::string table_entry(int64_t rank, int64_t local, int64_t code, const std::string& second) {
  return "[0]:\n  time      : 2025-05-21_15:43:" + second +
         "\n  rank      : " + std::to_string(rank) + " (local_rank: " + std::to_string(local) +
         ")\n  exitcode  : " + std::to_string(code) + " (pid: 1)\n";
}

TEST(LogOwners, WhatContainersAndRayWriteBeforeALineIsSkipped) {
  for (const char* prefix :
       {"2024-05-01T10:00:00.123456789Z ", "2024-05-01T10:00:00.123456789+00:00 stderr F ",
        "\x1b[36m(RayTrainWorker pid=10, ip=10.0.0.1)\x1b[0m ", "worker-1  | ",
        "job.node-d004 [stderr] ", "[default3]:", "  7%|#   | 3/40 [00:01<00:09] "})
    EXPECT_EQ(
        attribute_logs({read(traceback_of(prefix + std::string("[rank3]: "), "ValueError: x"))})
            .guilty,
        RankSet{3})
        << prefix;
  const std::string text = traceback_of("2024-05-01T10:00:00.5Z ", "ValueError: x");
  const LogOf log = read(text, 1);
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_EQ(log.events[0].rank, 1);
  EXPECT_EQ(log.events[0].kind, LogEventKind::exception);
}

TEST(LogOwners, OpenMpiFiveTagsLines) {
  EXPECT_EQ(log_prefix("[1,mpirank:2,algo-1]<stderr>:x").rank, 2);
  const LogPrefix prefix = log_prefix("[prterun-node-4711@1,2]<stderr>:x");
  EXPECT_EQ(prefix.rank, 2);
  EXPECT_EQ(prefix.rest, "x");
}

TEST(LogOwners, MpiexecPrependsRanks) {
  const std::string text = "[0] step 5\n[2] step 5\n";
  const LogOf log = read(text + traceback_of("[2] ", "ValueError: x") + "[1] step 5\n");
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_EQ(log.events[0].rank, 2);
  EXPECT_EQ(log.events[0].text, "ValueError: x");
}

TEST(LogOwners, StepsOfAProgramAreNoRanks) {
  const std::string steps = "[0] loss 2.5\n[1] loss 2.25\n";
  for (const int64_t file_rank : {int64_t{-1}, int64_t{3}}) {
    const LogOf log = read(steps + traceback_of("", "ValueError: x"), file_rank);
    ASSERT_EQ(log.events.size(), 1U);
    EXPECT_EQ(log.events[0].rank, file_rank);
    EXPECT_EQ(log.ranks, file_rank < 0 ? std::set<int64_t>{} : std::set<int64_t>{3});
  }
  // In the file of one rank numbers are no ranks, whatever stands behind them.
  EXPECT_EQ(read(steps + traceback_of("[1] ", "ValueError: x"), 3).events.at(0).rank, 3);
}

TEST(LogOwners, HostsOfPdshAreSkipped) {
  for (const char* host : {"node-12: ", "10.0.0.7: ", "gpu3.cluster: "}) {
    const LogPrefix role = log_prefix(std::string(host) + "[default1]:x");
    EXPECT_EQ(role.owner, LineOwner::node) << host;
    EXPECT_EQ(role.rank, 1) << host;
    const LogOf log = read(traceback_of(host, "ValueError: x"), 1);
    ASSERT_EQ(log.events.size(), 1U) << host;
    EXPECT_EQ(log.events[0].rank, 1);
  }
  for (const char* none : {"socket.timeout: x", "step-12: loss 3", "rank-1: [a"})
    EXPECT_NE(log_prefix(none).rest, "x") << none;
  EXPECT_EQ(log_prefix("step-12: loss 3").rest, "step-12: loss 3");
}

// torchrun --role rank --tee 3, as torchtitan calls it: its word counts one node's processes.
TEST(LogOwners, ARoleNamedRankIsNoRank) {
  const std::string text = "[rank3]:step 5\n" +
                           traceback_of("[rank3]:[rank11]: ", "ValueError: x") +
                           traceback_of("[rank0]:", kLost);
  const FlightFinding found = attribute_logs({read(text)});
  EXPECT_EQ(found.guilty, RankSet{11});
  EXPECT_EQ(found.victims, RankSet{8});
}

TEST(LogOwners, AListsNumbersAreNoLabels) {
  std::string text = "0: background\n1: cat\n";
  for (int step = 0; step < 9; ++step) text += "step 5\n";
  const LogOf log = read(text + traceback_of("", "ValueError: x"), 3);
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_EQ(log.events[0].rank, 3);
  EXPECT_EQ(log.ranks, std::set<int64_t>{3});
  const LogOf labelled = read(traceback_of("2: ", "ValueError: x") + "1: step 5\n");
  EXPECT_EQ(labelled.ranks, (std::set<int64_t>{1, 2}));
}

TEST(LogOwners, AFileOfSeveralRanksIsNoRanksWhateverItsName) {
  const std::string text = traceback_of("[rank4]: ", kLost) + traceback_of("[rank5]: ", kLost) +
                           traceback_of("", "ValueError: of whom?");
  const LogOf log = read(text, 1);
  EXPECT_EQ(log.events.back().rank, -1);
  EXPECT_EQ(log.told_rank, -1);
}

TEST(LogOwners, ALaunchersFileIsNoRanks) {
  const LogOf log = read(
      "failed (exitcode: 1) local_rank: 3 (pid: 4)\n" + traceback_of("", "ValueError: of whom?"),
      1);
  EXPECT_EQ(log.events.back().rank, -1);
  EXPECT_TRUE(log.ranks.empty());
  const LogOf begun = read(
      "W0626 torch/distributed/run.py:774] *****\n" + traceback_of("", "ValueError: of whom?"), 1);
  EXPECT_EQ(begun.events.back().rank, -1);
}

// Two nodes in one log: 3 of which?
TEST(LogOwners, ANodesProcessIsNotNamedWhereTwoNodesCount) {
  const std::string text = traceback_of("[default3]:", "ValueError: x") +
                           table_entry(3, 3, -6, "05") + table_entry(11, 3, 1, "04");
  EXPECT_FALSE(attribute_logs({read(text)}).decided);
}

// srun and mpirun start a torchrun on each node: their numbers count nodes.
TEST(LogOwners, LabelsOfAgentsAreNoRanks) {
  const std::string failed =
      "torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: -11) local_rank: 1 "
      "(pid: 4)\n";
  for (const char* label : {"1: ", "[1,1]<stderr>:"}) {
    const std::string fallen = label + std::string("Fatal Python error: Segmentation fault\n");
    EXPECT_EQ(attribute_logs({read(fallen)}).guilty, RankSet{1}) << label;
    const FlightFinding found = attribute_logs({read(fallen + label + failed)});
    EXPECT_FALSE(found.decided) << label;
    EXPECT_TRUE(found.candidates.empty()) << label;
    EXPECT_TRUE(read(fallen + label + failed).ranks.empty()) << label;
  }
  const FlightFinding table = attribute_logs(
      {read(traceback_of("1: ", "ValueError: x") +
            behind("1: ",
                   "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
                   "Root Cause (first observed failure):\n" +
                       table_entry(13, 5, 1, "04")))});
  EXPECT_EQ(table.guilty, RankSet{13});
}

TEST(LogOwners, AProgramThatRecordsItsErrorsIsNoAgent) {
  const std::string text =
      "2: Traceback (most recent call last):\n2:   File \"x/torch/distributed/"
      "elastic/multiprocessing/errors/__init__.py\", line 346, in wrapper\n"
      "2:   File \"train.py\", line 8\n2: ValueError: x\n"
      "srun: error: n1: task 2: Exited with exit code 1\n";
  EXPECT_EQ(attribute_logs({read(text)}).guilty, RankSet{2});
}

TEST(LogOwners, AnExceptionThatWasHandledEndedNothing) {
  const std::string handling =
      "[rank1]: \n[rank1]: During handling of the above exception, another exception occurred:\n";
  const FlightFinding lost = attribute_logs({read(traceback_of("[rank1]: ", "KeyError: 'cache'") +
                                                  handling + traceback_of("[rank1]: ", kLost))});
  EXPECT_FALSE(lost.decided);
  EXPECT_EQ(lost.victims, RankSet{1});
  const FlightFinding own =
      attribute_logs({read(traceback_of("[rank1]: ", "KeyError: 'cache'") + handling +
                           traceback_of("[rank1]: ", "ValueError: x"))});
  EXPECT_EQ(own.guilty, RankSet{1});
}

TEST(LogOwners, OfTorchelasticsAttemptsTheLastCounts) {
  const std::string text =
      traceback_of("[rank1]: ", "ValueError: once") +
      "[default] Worker group FAILED. 3/3 attempts left; will restart worker group\n" +
      traceback_of("[rank2]: ", kLost);
  const FlightFinding found = attribute_logs({read(text)});
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.victims, RankSet{2});
}

// In one line with the exception: of no attempt that counts.
TEST(LogOwners, AnExceptionThatTellsOfAnotherAttemptIsOfTheOneBefore) {
  const std::string restarted =
      traceback_of("[rank1]: ", "ConnectionError: 3/3 attempts left; will restart worker group");
  EXPECT_TRUE(attribute_logs({read(restarted)}).victims.empty());
  const FlightFinding found = attribute_logs({read(restarted + traceback_of("[rank2]: ", kLost))});
  EXPECT_EQ(found.victims, RankSet{2});
}

TEST(LogOwners, WhoCallsWhatFewCallIsACandidate) {
  std::string text;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto call = [](int64_t one) {
      return "ank " + std::to_string(one) +
             " is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=" +
             (one == 2 ? "BROADCAST" : "ALLREDUCE") + ", TensorShape=[4])";
    };
    text += traceback_of("[rank" + std::to_string(rank) + "]: ",
                         "RuntimeError: Detected mismatch between collectives on ranks. R" +
                             call(rank) + ", but R" + call(rank == 2 ? 0 : 2) + ".");
  }
  const FlightFinding found = attribute_logs({read(text)});
  EXPECT_FALSE(found.decided) << "others may not be told of";
  EXPECT_EQ(found.candidates, RankSet{2});
}

// Of dumps in which nobody waits nothing would be said.
TEST(LogOwners, AFailureOfNobodyIsNotOverlookedBesideHealthyDumps) {
  JobEvidence job;
  for (int64_t rank = 0; rank < 2; ++rank) {
    FlightDump dump;
    dump.rank = rank;
    dump.ranks_at_least = 2;
    job.dumps.push_back(dump);
  }
  EXPECT_TRUE(attribute_job(job).decided);
  job.events = read(traceback_of("", "ValueError: of whom?")).events;
  job.logs = 1;
  EXPECT_FALSE(attribute_job(job).decided);
}

TEST(LogOwners, WhatOtherProcessesMayHaveCausedIsNotOwn) {
  for (const char* text :
       {"ray.exceptions.ActorDiedError: The actor died unexpectedly", "_queue.Empty",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected"})
    EXPECT_FALSE(attribute_logs({read(traceback_of("[rank1]: ", text))}).decided) << text;
  EXPECT_FALSE(
      attribute_logs({read("[rank1]:[E626 x.cpp:1] Process group watchdog thread terminated "
                           "with exception: CUDA error: uncorrectable NVLink error\n")})
          .decided);
  for (const char* text :
       {"torch.distributed.DistNetworkError: code: -98, name: EADDRINUSE, message: address already "
        "in use",
        "RuntimeError: DataLoader timed out after 120 seconds"})
    EXPECT_EQ(attribute_logs({read(traceback_of("[rank1]: ", text))}).guilty, RankSet{1}) << text;
}

TEST(LogOwners, WhomSlurmEndsWithTheStepIsNotGuilty) {
  for (const char* words :
       {"srun: Terminating job step 12.0\n", "srun: Force Terminated StepId=1.0\n",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"}) {
    const std::string ends = std::string(words) + "srun: error: node1: task 1: Killed\n";
    EXPECT_FALSE(attribute_logs({read(ends)}).decided) << words;
    EXPECT_EQ(
        attribute_logs({read("srun: error: node1: task 2: Segmentation fault\n" + ends)}).guilty,
        RankSet{2})
        << words;
  }
}

FileRank folder(const std::string& node, int64_t rank) { return {node, rank, true}; }

TEST(NodeLogs, OneWordOfARankGivesThoseOfItsNode) {
  NodeLogs logs;
  logs.take(folder("n0/", 3), read("[rank3]: hello\n", 3, "a"));
  logs.take(folder("n1/", 0), read("[rank8]: hello\n", 0, "b"));
  logs.take(folder("n1/", 3), read(traceback_of("", "ValueError: x"), 3, "c"));
  const auto all = logs.finish();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2].events.at(0).rank, 11);
  EXPECT_EQ(all[2].ranks, std::set<int64_t>{11});
}

TEST(NodeLogs, WithoutOneOfTwoNodesNumbersAreNobodys) {
  for (const bool two : {false, true}) {
    NodeLogs logs;
    logs.take(folder("n0/", 3), read(traceback_of("", "ValueError: x"), 3, "a"));
    if (two) logs.take(folder("n1/", 3), read("hello\n", 3, "b"));
    EXPECT_EQ(logs.finish().at(0).events.at(0).rank, two ? -1 : 3);
  }
}

TEST(FileRanks, NumbersOfNodesAreNoRanks) {
  for (const char* name : {"node1.log", "worker-0.log", "host_2.txt", "job-master-0",
                           "slurm-12.out", "local_rank3.log"})
    EXPECT_LT(rank_in_name(name).rank, 0) << name;
  for (const char* name : {"node_rank_1.log", "noderank1.log", "out.group_rank.2", "tp_rank_1.log",
                           "pipeline-rank-2.txt", "mp_rank_00.log", "machine_rank=1.log"})
    EXPECT_LT(rank_in_name(name).rank, 0) << name;
  for (const char* name : {"log.txt.rank3", "global_rank_3.log", "trainer_rank_3.log",
                           "node_rank_1_rank_3.log", "output-RANK3.txt"})
    EXPECT_EQ(rank_in_name(name).rank, 3) << name;
  EXPECT_FALSE(rank_of_dump("nccl_trace_node_rank_1"));
  EXPECT_EQ(rank_in_name("stderr_3.txt").rank, 3);
  EXPECT_EQ(rank_in_name("job-rank-3-node-1.log").rank, 3);
  EXPECT_TRUE(rank_in_name("run/attempt_0/3/stderr.log").of_node);
  const auto ranks = ranks_of_logs({"n0/log.0", "n0/log.1", "n1/log.0", "n1/log.1"});
  ASSERT_EQ(ranks.size(), 4U);
  for (const auto& [log, rank] : ranks) EXPECT_TRUE(rank.of_node) << log;
  for (const auto& [log, rank] :
       ranks_of_logs({"stdout/log.0", "stdout/log.1", "stderr/log.0", "stderr/log.1"}))
    EXPECT_FALSE(rank.of_node) << log;
}

TEST(FileRanks, ADumpsRankIsTheNumberAtItsEndUnlessItsWordSaysOtherwise) {
  EXPECT_EQ(rank_of_dump("x/_dump_3"), 3);
  EXPECT_EQ(rank_of_dump("dump_3.json"), 3);
  EXPECT_EQ(rank_of_dump("nccl_trace_rank_container-node02_5"), 5);
  EXPECT_EQ(rank_of_dump("_dump_train-worker-3_11"), 11);
  EXPECT_EQ(rank_of_dump("nccl_trace_rank_3_node_1"), 3);
  EXPECT_EQ(rank_of_dump("rank_3.pkl"), 3);
  EXPECT_EQ(rank_of_dump("rank3_trace"), 3);
  EXPECT_EQ(rank_of_dump("nccl_trace_rank_3.2024-01-05"), 3);
  EXPECT_FALSE(rank_of_dump("rank3_trace_5")) << "two numbers";
  EXPECT_FALSE(rank_of_dump("_dump"));
}

}  // namespace
}  // namespace lockstep
