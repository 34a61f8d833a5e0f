#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include "scenarios/json/schema.h"
#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/log_lines.h"
#include "sim/tools/explain/log_patterns.h"
#include "sim/tools/explain/log_source.h"
#include "sim/tools/explain/needles.h"
#include "sim/tools/explain/report.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

void add(JobEvidence* job, const std::string& text, int64_t rank = -1) {
  LogReader reader(rank < 0 ? "job.log" : "log." + std::to_string(rank), rank);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); reader.next_line()) reader.take(line);
  for (LogEvent& event : reader.finish()) job->events.push_back(std::move(event));
  job->logged.insert(reader.ranks().begin(), reader.ranks().end());
  ++job->logs;
}

FlightFinding attribute_text(const std::string& text) {
  JobEvidence job;
  add(&job, text);
  return attribute_job(job);
}

std::string waits(int64_t rank, int64_t sequence, int64_t enqueued, int64_t completed) {
  const std::string number = std::to_string(rank);
  return "[rank" + number +
         "]:[E626 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank " + number +
         "] Exception (either an error or timeout) detected by watchdog at work: " +
         std::to_string(sequence) + ", last enqueued NCCL work: " + std::to_string(enqueued) +
         ", last completed NCCL work: " + std::to_string(completed) + ".\n";
}

std::string was_at(int64_t rank, int64_t enqueued, int64_t completed) {
  const std::string number = std::to_string(rank);
  return "[rank" + number +
         "]:[E626 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0(default_pg) Rank " + number +
         "] Received a dump signal due to a collective timeout from  rank 0 and we will try "
         "our best to dump the debug info. Last enqueued NCCL work: " +
         std::to_string(enqueued) + ", last completed NCCL work: " + std::to_string(completed) +
         ".\n";
}

std::string raised(const std::string& prefix, const std::string& exception) {
  return prefix + "Traceback (most recent call last):\n" + prefix +
         "  File \"train.py\", line 8\n" + prefix + exception + "\n";
}

const std::string kClosed =
    "RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
    "[127.0.0.1]:16772.";

// The event lies across the 1 MiB that are read at a time, or beside it.
TEST(LogSource, EitherEndOfALineEndsItAtAnyPlaceOfAPiece) {
  const std::string event = waits(1, 5, 5, 4);
  constexpr size_t kPiece = size_t{1} << 20;
  for (const std::string& before :
       std::vector<std::string>{"10%\r", "10%\r20%\r", "10%\r\n", "one\n\r\rtwo\r\n", "\r\n\n",
                                std::string(300, '#') + "\r"})
    for (const size_t at : {size_t{400}, kPiece - 60, kPiece - 1, kPiece, kPiece + 1}) {
      std::string text(at - before.size(), 'x');
      text.replace(text.size() / 2, 1, "\n");
      text += before + event + event;
      const LogOf log = log_of(text, "job.log", -1);
      const int64_t line = std::count(text.begin(), text.begin() + static_cast<int64_t>(at), '\n');
      ASSERT_EQ(log.events.size(), 2u) << at;
      EXPECT_EQ(log.events[0].rank, 1);
      EXPECT_EQ(log.events[0].line, line + 1) << at;
      EXPECT_EQ(log.events[1].line, line + 2) << at;
    }
}

TEST(JobLogs, WhoIsBehindByNumberWhileOthersWaitIsNamed) {
  const FlightFinding found =
      attribute_text(waits(0, 22, 22, 21) + was_at(1, 21, 21) + waits(2, 22, 22, 21));
  EXPECT_TRUE(found.decided);
  EXPECT_EQ(found.kind, FlightClass::never_entered);
  EXPECT_EQ(found.guilty, RankSet{1});
  EXPECT_EQ(found.victims, (RankSet{0, 2}));
  EXPECT_EQ(found.sequence, 22);
}

TEST(JobLogs, ARankWithoutALogLeavesItUndecided) {
  const FlightFinding found = attribute_text(waits(0, 22, 22, 21) + was_at(2, 21, 21));
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
  EXPECT_TRUE(found.candidates.contains(1));
}

TEST(JobLogs, WhoHoldsWhatOthersCompletedIsNamed) {
  const std::string work =
      "[rank1]:[E626 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
      "timeout: WorkNCCL(SeqNum=20, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=1000) ran "
      "for 1001 milliseconds before timing out.\n";
  const FlightFinding found =
      attribute_text(waits(0, 22, 22, 21) + work + waits(1, 20, 22, 19) + waits(2, 22, 22, 21));
  EXPECT_EQ(found.kind, FlightClass::held);
  EXPECT_EQ(found.guilty, RankSet{1});
}

TEST(JobLogs, WordsOfCommunicationInAnExceptionOfAnotherTypeAreNoLostPeer) {
  for (const char* exception :
       {"KeyError: 'timeout'", "ValueError: invalid socket_timeout",
        "subprocess.TimeoutExpired: Command 'nvidia-smi' timed out after 5 seconds",
        "InterruptedError: SIGTERM received, exiting"}) {
    const FlightFinding found = attribute_text(raised("[rank1]: ", exception) +
                                               raised("[rank0]: ", kClosed) + "[rank2]: step 7\n");
    EXPECT_FALSE(found.decided) << exception;
    EXPECT_TRUE(found.guilty.empty()) << exception;
    EXPECT_TRUE(found.candidates.contains(1)) << exception;
  }
}

TEST(JobLogs, WhoTrainsOnAfterAnExceptionHasCaughtIt) {
  const std::string lines = "[rank0]: step 30 loss 0.5\n[rank1]: step 30 loss 0.5\n";
  const std::string message = "[rank1]: For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n";
  EXPECT_EQ(attribute_text(raised("[rank1]: ", "KeyError: 'jpg'") + message).guilty, RankSet{1});
  EXPECT_TRUE(attribute_text(raised("[rank1]: ", "KeyError: 'jpg'") + lines).guilty.empty());
  const std::string memory = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n";
  EXPECT_EQ(attribute_text(memory).guilty, RankSet{1});
  EXPECT_TRUE(attribute_text(memory + "[rank1]: falling back to batch 4\n").guilty.empty());
}

TEST(JobLogs, SomethingThatFailedBesideCleanDumpsIsNotNothing) {
  JobEvidence job;
  for (int64_t rank = 0; rank < 2; ++rank) {
    FlightDump dump;
    dump.rank = rank;
    dump.groups["0"] = {"default_pg",
                        std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 1})};
    dump.status["0"] = {7, 7};
    job.dumps.push_back(dump);
  }
  JobEvidence crashed = job;
  add(&job, "step 7 loss 0.5\n");
  EXPECT_TRUE(attribute_job(job).decided);
  add(&crashed, "step 7 loss 0.5\nterminate called after throwing an instance of 'c10::Error'\n");
  const FlightFinding found = attribute_job(crashed);
  EXPECT_FALSE(found.decided);
  ASSERT_FALSE(found.missing.empty());
  EXPECT_NE(found.missing.back().find("what failed, and where (job.log:2)"), std::string::npos);
}

TEST(JobLogs, ALostConnectionThatWasCaughtHidesNoException) {
  const std::string caught =
      "Traceback (most recent call last):\n  File \"a.py\", line 3\n"
      "ConnectionResetError: [Errno 104] Connection reset by peer\n";
  JobEvidence job;
  add(&job, caught + raised("[rank1]: ", "ValueError: no gradient"), 1);
  add(&job, raised("[rank0]: ", kClosed), 0);
  add(&job, "step 30\n", 2);
  const FlightFinding found = attribute_job(job);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.candidates.contains(1));
}

TEST(JobLogs, AnExceptionAfterALostPeerIsAConsequence) {
  const FlightFinding found =
      attribute_text(raised("[rank1]: ", kClosed) + raised("[rank1]: ", "ValueError: no gradient") +
                     raised("[rank0]: ", "KeyError: 'loss'"));
  EXPECT_EQ(found.guilty, RankSet{0});
  EXPECT_EQ(found.victims, RankSet{1});
}

TEST(JobLogs, WhereTwoEndedByThemselvesNobodyIsNamed) {
  const FlightFinding found = attribute_text(raised("[rank1]: ", "ValueError: a") +
                                             raised("[rank0]: ", "KeyError: 'loss'"));
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, (RankSet{0, 1}));
}

// Nobody knows whether a traceback without PyTorch's "[rank1]:" ended the process.
TEST(JobLogs, ATracebackThatMayHaveBeenCaughtNamesNobodyUnlessALauncherSawTheEnd) {
  JobEvidence job;
  add(&job, raised("", "ValueError: a"), 1);
  add(&job, raised("[rank0]: ", kClosed), 0);
  EXPECT_FALSE(attribute_job(job).decided);
  add(&job, "srun: error: node1: task 1: Exited with exit code 1\n");
  EXPECT_EQ(attribute_job(job).guilty, RankSet{1});
}

TEST(JobLogs, WhatSpeaksOfPeersIsNoOwnException) {
  for (const char* text :
       {"RuntimeError: collective of rank 0 differs", "torch.distributed.DistBackendError: x",
        "RuntimeError: NCCL error", "TimeoutError: wait", "KeyboardInterrupt",
        "RuntimeError: Broken pipe", "EOFError"})
    EXPECT_TRUE(attribute_text(raised("[rank1]: ", text)).guilty.empty()) << text;
  for (const char* text :
       {"ValueError: compile", "torch.OutOfMemoryError: CUDA out of memory.", "AssertionError",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied"})
    EXPECT_EQ(attribute_text(raised("[rank1]: ", text)).guilty, RankSet{1}) << text;
}

TEST(JobLogs, AnExceptionOutOfTorchDistributedIsUnclear) {
  const std::string text =
      "[rank1]: Traceback (most recent call last):\n"
      "[rank1]:   File \"/site-packages/torch/distributed/distributed_c10d.py\", line 4181\n"
      "[rank1]: RuntimeError: something\n";
  EXPECT_FALSE(attribute_text(text).decided);
}

TEST(JobLogs, WhomALauncherStoppedIsNotGuilty) {
  const FlightFinding found = attribute_text(
      "srun: error: node1: task 2: Killed\nsrun: Terminating StepId=1.0\n"
      "srun: error: node1: tasks 0-1,3: Terminated\nsrun: error: node1: task 4: Killed\n");
  EXPECT_EQ(found.guilty, RankSet{2});
}

// srun torchrun: its tasks are nodes.
TEST(JobLogs, ATaskOfSlurmThatIsAnAgentIsNoRank) {
  const FlightFinding found = attribute_text(
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
      "srun: error: node1: task 2: Killed\n");
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.candidates.empty());
}

TEST(JobLogs, AnUnexplainedEndAtTheSameSecondLeavesItUndecided) {
  const auto part = [](int64_t rank, int64_t code, const std::string& time) {
    return "[0]:\n  time      : " + time + "\n  rank      : " + std::to_string(rank) +
           " (local_rank: " + std::to_string(rank) + ")\n  exitcode  : " + std::to_string(code) +
           " (pid: 1)\n";
  };
  const std::string root =
      "Root Cause (first observed failure):\n" + part(1, -9, "2025-05-21_15:43:03");
  EXPECT_FALSE(attribute_text(part(0, 1, "2025-05-21_15:43:03") + root).decided);
  EXPECT_EQ(attribute_text(part(0, 1, "2025-05-21_15:43:04") + root).guilty, RankSet{1});
  // Its log says that it lost a peer: then the time does not matter.
  EXPECT_EQ(attribute_text(raised("[rank0]: ", kClosed) + part(0, 1, "2025-05-21_15:43:03") + root)
                .guilty,
            RankSet{1});
}

FlightDump empty_dump(int64_t rank, int64_t world) {
  FlightDump dump;
  dump.rank = rank;
  dump.ranks_at_least = world;
  return dump;
}

// Of Gloo, after so many collectives of all ranks.
FlightDump gloo_dump(int64_t rank, int64_t world, int64_t collectives) {
  FlightDump dump = empty_dump(rank, world);
  for (int64_t sequence = 1; sequence <= collectives; ++sequence) {
    FlightEntry entry;
    entry.sequence = entry.record = sequence;
    entry.group = "0";
    entry.operation = "all_reduce";
    entry.gloo = entry.done = true;
    dump.entries.push_back(entry);
  }
  dump.groups["0"] = {"default_pg", nullptr};
  return dump;
}

TEST(JobLogs, WhoLeftNoDumpAndNoWordWhereAllOthersDidIsNamed) {
  JobEvidence job;
  for (const int64_t rank : {0, 2}) {
    add(&job, raised("[rank" + std::to_string(rank) + "]: ", kClosed), rank);
    job.dumps.push_back(empty_dump(rank, 3));
  }
  EXPECT_FALSE(attribute_job(job).decided) << "its log is not there";
  add(&job, "", 1);
  EXPECT_EQ(attribute_job(job).guilty, RankSet{1});
  EXPECT_EQ(attribute_job(job).kind, FlightClass::silent);
  EXPECT_TRUE(attribute_job(job).lost_connection);
  EXPECT_EQ(attribute_job(job).ranks, 3);
  for (FlightDump& dump : job.dumps) dump.ranks_at_least = 2;
  EXPECT_EQ(attribute_job(job).guilty, RankSet{1}) << "that is another group's number";
  job.dumps.back().ranks_at_least = 4;
  EXPECT_FALSE(attribute_job(job).decided) << "a rank of which nothing is there";
}

// Gloo's dumps do not tell who of several that did not enter lost a peer before.
TEST(JobLogs, OfSeveralThatDidNotEnterTheOneWithoutAWordIsNamed) {
  JobEvidence job;
  for (int64_t rank = 0; rank < 4; ++rank) {
    job.dumps.push_back(gloo_dump(rank, 4, rank < 2 ? 4 : 3));
    if (rank < 3) add(&job, raised("[rank" + std::to_string(rank) + "]: ", kClosed), rank);
  }
  EXPECT_EQ(attribute_job(job).candidates, (RankSet{2, 3}));
  add(&job, "", 3);
  EXPECT_EQ(attribute_job(job).guilty, RankSet{3});
  EXPECT_EQ(attribute_job(job).kind, FlightClass::never_entered);
  FlightEntry receive;
  receive.point_to_point = true;
  job.dumps.back().entries.push_back(receive);
  EXPECT_FALSE(attribute_job(job).decided) << "it may wait for another";
}

TEST(JobLogs, WhatDumpsAndLogsDisagreeOnIsUndecided) {
  JobEvidence job;
  for (int64_t rank = 0; rank < 3; ++rank) {
    FlightDump dump = empty_dump(rank, 3);
    dump.groups["0"] = {"default_pg",
                        std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 1, 2})};
    dump.status["0"] = {rank == 1 ? 3 : 4, 3};
    FlightEntry entry;
    entry.sequence = entry.record = 4;
    entry.group = "0";
    entry.operation = "all_reduce";
    if (rank != 1) dump.entries.push_back(entry);
    job.dumps.push_back(dump);
  }
  EXPECT_EQ(attribute_job(job).guilty, RankSet{1});
  JobEvidence agreeing = job;
  add(&agreeing, raised("[rank1]: ", "ValueError: a"));
  EXPECT_EQ(attribute_job(agreeing).guilty, RankSet{1});
  EXPECT_EQ(attribute_job(agreeing).kind, FlightClass::died);
  EXPECT_EQ(attribute_job(agreeing).sequence, 4);
  add(&job, raised("[rank2]: ", "ValueError: a"));
  EXPECT_FALSE(attribute_job(job).decided);
  EXPECT_EQ(attribute_job(job).candidates, (RankSet{1, 2}));
}

// mpiexec of Intel MPI and MPICH tells of those, too, that it killed itself.
TEST(JobLogs, WhoEndedByHydrasWordsIsACandidate) {
  const std::string head = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n";
  const std::string first = head + "=   RANK 2 PID 3412 RUNNING AT node01\n" +
                            "=   KILLED BY SIGNAL: 11 (Segmentation fault)\n";
  EXPECT_FALSE(attribute_text(first).decided);
  EXPECT_EQ(attribute_text(first).candidates, RankSet{2});
  const FlightFinding both =
      attribute_text(first + head + "=   RANK 0 PID 3410 RUNNING AT node01\n");
  EXPECT_EQ(both.candidates, (RankSet{0, 2}));
  EXPECT_EQ(attribute_text(first + raised("[rank2]: ", "ValueError: a")).guilty, RankSet{2});
  const FlightFinding of_mpich =
      attribute_text(head + "=   PID 3412 RUNNING AT node01\n=   EXIT CODE: 9\n");
  EXPECT_FALSE(of_mpich.decided);
  EXPECT_TRUE(of_mpich.candidates.empty());
}

// It was in a call of which the dumps do not tell.
TEST(JobLogs, WhoLostAPeerIsNotNamedForWhatItDidNotEnter) {
  JobEvidence job;
  for (int64_t rank = 0; rank < 3; ++rank) {
    job.dumps.push_back(gloo_dump(rank, 3, rank == 1 ? 3 : 4));
  }
  EXPECT_EQ(attribute_job(job).guilty, RankSet{1});
  add(&job, raised("[rank1]: ", kClosed), 1);
  EXPECT_FALSE(attribute_job(job).decided);
  EXPECT_TRUE(attribute_job(job).candidates.empty());
  EXPECT_TRUE(attribute_job(job).victims.contains(1));
}

TEST(LogLines, PrefixesOfLaunchersAreRead) {
  struct Case {
    const char* line;
    int64_t rank;
    const char* rest;
  };
  for (const Case& made :
       {Case{"[rank3]: x", 3, "x"}, Case{"[default3]:x", 3, "x"},
        Case{"[default3]:[rank11]: x", 11, "x"}, Case{" 3: x", 3, "x"},
        Case{"[1,3]<stderr>:x", 3, "x"}, Case{"\x1b[31m3: x", 3, "x"},
        Case{"12: [rank4]: x", 4, "x"}, Case{"x 3: y", -1, "x 3: y"},
        Case{"[rank]: x", -1, "[rank]: x"}, Case{"[rank99999999]: x", -1, "[rank99999999]: x"}}) {
    const LogPrefix prefix = log_prefix(made.line);
    EXPECT_EQ(prefix.rank, made.rank) << made.line;
    EXPECT_EQ(prefix.rest, made.rest) << made.line;
  }
}

// A progress bar leaves no end of line.
TEST(LogLines, ARankInTheMiddleOfALineCounts) {
  LogReader reader("job.log", -1);
  reader.take("  1%|          | 24/1752 [01:08<1:22:56,  2.88s/it]" + waits(5, 7, 7, 6));
  const auto events = reader.finish();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].rank, 5);
  EXPECT_EQ(events[0].group, "0");
  EXPECT_EQ(events[0].enqueued, 7);
}

// torchrun's table says which rank a node's process is.
TEST(LogLines, ANodesProcessIsCountedAsTheJobsRank) {
  LogReader reader("node1.log", -1);
  for (const char* line :
       {"failed (exitcode: -9) local_rank: 4 (pid: 1)", "Root Cause (first observed failure):",
        "  rank      : 12 (local_rank: 4)", "  exitcode  : -9 (pid: 1)"})
    reader.take(line);
  for (const LogEvent& event : reader.finish()) EXPECT_EQ(event.rank, 12);
}

// Found by fuzz_log: a signal of nobody.
TEST(LogLines, ALineThatLacksWhatStandsBesideItsWordsIsRead) {
  for (const LogPattern& pattern : log_patterns())
    for (const std::string& line : {std::string(pattern.needle), "x" + std::string(pattern.needle),
                                    pattern.needle + std::string("x")}) {
      LogReader reader("job.log", -1);
      reader.take(line);
      for (const LogEvent& event : reader.finish()) EXPECT_EQ(event.rank, -1) << line;
    }
}

TEST(LogLines, WhatIsKeptIsBounded) {
  LogReader reader("job.log", -1);
  const std::string line = waits(5, 7, 7, 6);
  for (int count = 0; count < 10'000; ++count) reader.take(line);
  EXPECT_LE(reader.finish().size(), 100U);
}

TEST(LogLines, EachPatternIsRecognizedAndInTheDocs) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/explain.md");
  const std::string docs((std::istreambuf_iterator<char>(file)), {});
  for (const LogPattern& pattern : log_patterns())
    EXPECT_NE(docs.find("| `" + std::string(pattern.needle) + "` | " + name_of(pattern.kind) +
                        " | " + pattern.source + " | " + pattern.since + " |"),
              std::string::npos)
        << pattern.needle;
}

TEST(Needles, FindWhatALookAtEachCharacterFinds) {
  const std::vector<std::string_view> words = {"abca", "bcab", "cabbage", "aaaa"};
  const Needles needles(words);
  std::mt19937 draw(7);
  size_t found = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text(draw() % 20, 'a');
    for (char& c : text) c = static_cast<char>('a' + draw() % 3);
    const bool any = std::any_of(words.begin(), words.end(),
                                 [&](auto word) { return text.find(word) != std::string::npos; });
    found += any ? 1 : 0;
    ASSERT_EQ(needles.any_in(text), any) << text;
  }
  EXPECT_GT(found, 1000U);
}

// torchelastic reads both.
TEST(ErrorFile, ItsMessageIsATextOrAnObjectWithOne) {
  for (const char* text : {R"({"message": "KeyError: a", "extraInfo": {}})",
                           R"({"message": {"message": "KeyError: a", "extraInfo": {}}})"}) {
    const auto log = error_file_of(text, "error.json", 2);
    ASSERT_TRUE(log) << text;
    ASSERT_EQ(log.value().events.size(), 1U) << text;
    EXPECT_TRUE(log.value().events[0].own) << text;
    EXPECT_EQ(log.value().events[0].text, "KeyError: a");
  }
  for (const char* text : {R"({"message": 5})", R"({"message": null})", R"({"message": []})",
                           R"({"message": {}})", R"({"message": {"message": [1]}})"}) {
    const auto log = error_file_of(text, "error.json", 2);
    ASSERT_TRUE(log) << text;
    EXPECT_FALSE(log.value().events[0].certain) << text;
  }
  for (const char* text : {"[]", "{}", "5", "\"message\""})
    EXPECT_FALSE(error_file_of(text, "error.json", 2)) << text;
}

TEST(ExplainReport, IsAsItsSchemaSays) {
  for (const std::string& text :
       {std::string(), waits(0, 22, 22, 21) + was_at(1, 21, 21) + waits(2, 22, 22, 21),
        raised("[rank1]: ", "ValueError: \x1b[2J")}) {
    const FlightFinding found = attribute_text(text);
    const auto written = nlohmann::json::parse(to_text(explain_json(found, {0, 1}, "")));
    EXPECT_EQ(schema_errors(explain_schema_text(), written), "");
    EXPECT_EQ(explain_text(found, {0, 1}).find('\x1b'), std::string::npos);
    const TestReport report = explain_report(found, {0, 1}, "logs");
    EXPECT_EQ(report.cases.at(0).result,
              found.decided ? TestCase::Result::failed : TestCase::Result::inconclusive);
    EXPECT_EQ(report.cases.at(0).message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
