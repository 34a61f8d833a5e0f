#include <gtest/gtest.h>

#include <string>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// Exceptions that ended no process, beside a launcher that saw the process end.

std::string at_3(const std::string& text) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    all += "[1,3]<stderr>:" + text.substr(begin, end - begin);
    begin = end;
  }
  return all;
}

std::string raised_last(const std::string& last) {
  return "Traceback (most recent call last):\n  File \"train.py\", line 9, in step\n    load()\n" +
         last + "\n";
}

std::string counted_steps(int64_t count) {
  std::string text;
  for (int64_t step = 0; step < count; ++step) text += "step " + std::to_string(step) + "\n";
  return text;
}

const char* kEndOf3 = "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 7)\n";

FlightFinding found_of(const std::string& text) {
  return attribute_job(evidence_of(text + kEndOf3));
}

TEST(CaughtExceptions, TheLastOfARankIsItsEnd) {
  EXPECT_EQ(found_of(at_3(counted_steps(300) + raised_last("ValueError: bad") + counted_steps(20)))
                .guilty,
            (RankSet{3}));
}

TEST(CaughtExceptions, WhatARankWroteMuchAfterDidNotEndIt) {
  const FlightFinding job = found_of(at_3(raised_last("ValueError: skipped") + counted_steps(300)));
  EXPECT_TRUE(job.guilty.empty());
  EXPECT_EQ(job.candidates, (RankSet{3}));
}

TEST(CaughtExceptions, WhoReportsATimeOutAfterItIsNotNamed) {
  const FlightFinding job = found_of(
      at_3(raised_last("ValueError: skipped") +
           "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective "
           "operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran "
           "for 600013 milliseconds before timing out.\n"));
  EXPECT_TRUE(job.guilty.empty());
}

TEST(CaughtExceptions, NeitherThreadsNorDestructorsEndTheirProcess) {
  for (const char* before :
       {"Exception in thread Thread-9 (monitor):\n",
        "Exception ignored in: <function Pool.__del__ at 0x7f>\n", "--- Logging error ---\n",
        "Task exception was never retrieved\nfuture: <Task finished name='Task-2'>\n"}) {
    const FlightFinding job =
        found_of(at_3(counted_steps(3) + before + raised_last("KeyError: 'gpu'")));
    EXPECT_TRUE(job.guilty.empty()) << before;
    EXPECT_FALSE(job.decided) << before;
  }
  EXPECT_EQ(found_of(at_3("Exception in thread Thread-9:\n" + raised_last("KeyError: 'gpu'") +
                          counted_steps(9) + raised_last("KeyError: 'step'")))
                .guilty,
            (RankSet{3}))
      << "the next one is the rank's own";
}

// Of a lost peer the thread tells like the rank.
TEST(CaughtExceptions, AThreadsLostPeerIsTheRanks) {
  EXPECT_EQ(found_of(at_3("Exception in thread Thread-9:\n" +
                          raised_last("RuntimeError: Connection closed by peer [10.0.0.4]:1")))
                .victims,
            (RankSet{3}));
}

// Ray shows once what several of its workers wrote.
TEST(CaughtExceptions, WhatRayShowsForSeveralRanksIsNotOneRanks) {
  const std::string last = "[rank3]: torch.OutOfMemoryError: CUDA out of memory.";
  expect_as_written({{"made up", "(W pid=4) " + last + "\n", {3}}});
  const FlightFinding job =
      attribute_job(evidence_of("(W pid=4) " + last + " [repeated 3x across cluster]\n"));
  EXPECT_TRUE(job.guilty.empty());
  EXPECT_EQ(job.candidates, (RankSet{3}));
}

TEST(CaughtExceptions, AServerThatDoesNotAnswerMayBeOfTheJob) {
  expect_as_written({{"made up", "[rank0]: " + raised_last("requests.exceptions.ReadTimeout: "
                                                           "HTTPConnectionPool(host='10.0.0.4', "
                                                           "port=8000): Read timed out.")}});
}

}  // namespace
}  // namespace lockstep
