#include <gtest/gtest.h>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"
#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/log_exception.h"
#include "sim/tools/explain/log_source.h"
#include "sim/tools/explain/reproduction.h"

namespace lockstep {
namespace {

constexpr int64_t kRanks = 4;

struct SteppedCall {
  std::string operation = "all_reduce";
  std::string sizes = "[[4]]";
  bool done = false;
  bool started = false;
};

void call(FlightDump* dump, const SteppedCall& made, const std::string& group = "0") {
  FlightEntry entry;
  FlightStatus& status = dump->status[group];
  entry.record = static_cast<int64_t>(dump->entries.size());
  entry.group = group;
  entry.sequence = ++status.enqueued;
  if (made.done) status.completed = entry.sequence;
  entry.operation = made.operation;
  entry.sizes = made.sizes;
  entry.dtypes = "[\"Float\"]";
  entry.done = made.done;
  entry.started = made.started;
  dump->tells_starts |= made.started;
  dump->entries.push_back(entry);
}

// Ranks of NCCL that went through steps of two calls.
std::vector<FlightDump> stepping_job(int64_t ranks = kRanks, int64_t steps = 4,
                                     bool timed = false) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < ranks; ++rank) all.push_back(rank);
  const auto members = std::make_shared<const std::vector<int64_t>>(all);
  std::vector<FlightDump> job(all.size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    FlightDump& dump = job[static_cast<size_t>(rank)];
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", members};
    dump.status["0"] = {0, 0};
    for (int64_t step = 0; step < steps; ++step)
      for (const char* sizes : {"[[4]]", "[[9]]"})
        call(&dump, {.sizes = sizes, .done = true, .started = timed});
  }
  return job;
}

TEST(ExplainMismatch, TheSameCallsInAnotherOrderAreAClassOfTheirOwn) {
  auto job = stepping_job();
  for (FlightDump& dump : job) {
    const bool swapped = dump.rank == 2;
    call(&dump, {.sizes = swapped ? "[[9]]" : "[[4]]"});
    call(&dump, {.sizes = swapped ? "[[4]]" : "[[9]]"});
  }
  FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::order);
  EXPECT_EQ(found.guilty, RankSet{2});
  EXPECT_EQ(found.sequence, 9);
  EXPECT_TRUE(reproduce(found).scenario);
  job[2].entries.back().sizes = "[[5]]";
  EXPECT_EQ(attribute(job).kind, FlightClass::mismatch);
}

TEST(ExplainMismatch, WhoGoesOnWithItsStepsWhereTheOthersLeftThemIsAhead) {
  auto job = stepping_job();
  for (FlightDump& dump : job)
    call(&dump, {.operation = dump.rank == 1 ? "all_reduce" : "barrier"});
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::ahead);
  EXPECT_EQ(found.guilty, RankSet{1});
  EXPECT_FALSE(reproduce(found).scenario);
  // One that calls something of no step may have left its loop, or called too much.
  auto other = stepping_job();
  for (FlightDump& dump : other)
    call(&dump, {.operation = dump.rank == 1 ? "barrier" : "all_reduce"});
  EXPECT_EQ(attribute(other).kind, FlightClass::mismatch);
}

// Seven of eight were named for what one alone called.
TEST(ExplainMismatch, MostOfAGroupAreNotNamedForNotComing) {
  auto job = stepping_job();
  call(&job[0], {});
  const FlightFinding alone = attribute(job);
  EXPECT_FALSE(alone.decided);
  EXPECT_TRUE(alone.guilty.empty());
  EXPECT_EQ(alone.candidates, (RankSet{0, 1, 2, 3}));
  call(&job[1], {});
  EXPECT_EQ(attribute(job).guilty, (RankSet{2, 3}));
}

TEST(ExplainMismatch, WhoseGpuNeverBeganWhatItsPeersBeganIsNamed) {
  auto job = stepping_job(kRanks, 4, true);
  for (FlightDump& dump : job) call(&dump, {.started = dump.rank != 3});
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::not_started);
  EXPECT_EQ(found.guilty, RankSet{3});
  EXPECT_EQ(found.victims, (RankSet{0, 1, 2}));
  job[3].tells_starts = false;  // then nobody knows whether it began
  EXPECT_FALSE(attribute(job).decided);
}

TEST(ExplainMismatch, WhoWaitsInAReceiveBeforeItIsNotNamedForNotBeginning) {
  auto job = stepping_job(kRanks, 4, true);
  FlightEntry receive = job[3].entries.back();
  receive.point_to_point = true;
  receive.done = false;
  job[3].entries.push_back(receive);
  for (FlightDump& dump : job) call(&dump, {.started = dump.rank != 3});
  const FlightFinding found = attribute(job);
  EXPECT_TRUE(found.guilty.empty());
  EXPECT_FALSE(found.decided);
}

TEST(ExplainMismatch, OutputsAreComparedAndShapesByTheirElements) {
  auto job = stepping_job();
  for (FlightDump& dump : job) call(&dump, {.sizes = "[[4]]"});
  job[1].entries.back().sizes = "[[2,2]]";
  EXPECT_NE(attribute(job).kind, FlightClass::mismatch);
  job[1].entries.back().sizes = "[[4]]->[[8]]";
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.guilty, RankSet{1});
  EXPECT_EQ(found.difference, Difference::size);
}

TEST(ExplainMismatch, OneThatAllWentThroughExplainsNoLaterHang) {
  auto job = stepping_job();
  job[2].entries[1].sizes = "[[7]]";
  EXPECT_EQ(attribute(job).kind, FlightClass::mismatch);
  for (const size_t rank : {0, 2, 3}) call(&job[rank], {});
  const FlightFinding found = attribute(job);
  EXPECT_EQ(found.kind, FlightClass::never_entered);
  EXPECT_EQ(found.guilty, RankSet{1});
}

TEST(ExplainMismatch, CollectivesOfTorchcommsAndThoseOfBasesAreHeldToo) {
  for (const char* operation : {"all_gather_single", "all_to_all_single", "all_reduce_barrier",
                                "REDUCE_SCATTER_coalesced", "all_gather_into_tensor_coalesced"}) {
    auto job = stepping_job();
    for (FlightDump& dump : job) call(&dump, {.operation = operation, .done = dump.rank != 3});
    EXPECT_EQ(attribute(job).guilty, RankSet{3}) << operation;
    EXPECT_EQ(attribute(job).kind, FlightClass::held) << operation;
  }
}

TEST(ExplainMismatch, OfAMissingDumpItIsToldAndWhoWasSentMoreCalledTheSmallerSize) {
  auto job = stepping_job(3);
  for (FlightDump& dump : job) call(&dump, {.sizes = dump.rank == 2 ? "[[9]]" : "[[8]]"});
  job.erase(job.begin());
  const FlightFinding two = attribute(job);
  EXPECT_FALSE(two.decided);
  EXPECT_EQ(two.missing.size(), 2U);
  EXPECT_EQ(attribute(job, {0}).guilty, RankSet{2});
  EXPECT_EQ(attribute(job, {0}).victims, (RankSet{0, 1}));

  JobEvidence evidence;
  evidence.dumps = job;
  const LogOf log = log_of(
      "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce "
      "fail at /gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 36 vs 32\n",
      "log.0", 0);
  evidence.events = log.events;
  evidence.logged = log.ranks;
  evidence.logs = 1;
  EXPECT_EQ(attribute_job(evidence).guilty, RankSet{2});
}

TEST(ExplainMismatch, ASizeThatOnlyALogTellsIsCompared) {
  auto job = stepping_job();
  for (FlightDump& dump : job) call(&dump, {.sizes = "[[2,4]]"});
  job[3].from_log = true;
  job[3].entries.back().sizes = "7";
  job[3].entries.back().dtypes.clear();
  EXPECT_EQ(attribute(job).guilty, RankSet{3});
  job[3].entries.back().sizes = "8";
  EXPECT_TRUE(attribute(job).guilty.empty());
}

// The line with the sizes names no group, the one with the group no sizes.
TEST(ExplainMismatch, SizesOfWatchdogsAreComparedAndWhoElseThereIsStaysOpen) {
  std::string text;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const std::string number = std::to_string(rank), size = rank == 2 ? "99" : "100";
    text += "[rank" + number + "]:[E ProcessGroupNCCL.cpp:632] [Rank " + number +
            "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
            "NumelIn=" +
            size + ", NumelOut=" + size +
            ", Timeout(ms)=1000) ran for 1060 "
            "milliseconds before timing out.\n[rank" +
            number + "]:[E ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank " +
            number +
            "]  failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: "
            "7, last completed work: 6\n";
  }
  const LogOf log = log_of(text, "job.log", -1);
  JobEvidence evidence;
  evidence.events = log.events;
  evidence.logged = log.ranks;
  evidence.logs = 1;
  const FlightFinding found = attribute_job(evidence);
  EXPECT_EQ(found.kind, FlightClass::mismatch);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.candidates.contains(2));
  EXPECT_FALSE(found.candidates.contains(1));

  LogEvent other = evidence.events[4];
  ASSERT_EQ(other.rank, 2);
  other.operation = "ALLGATHER";  // of another group: what of rank 2's is which is not known
  evidence.events.push_back(other);
  EXPECT_NE(attribute_job(evidence).kind, FlightClass::mismatch);
}

// As PyTorch's own analyzer is tested with: numbers of groups and times are not there.
TEST(ExplainMismatch, ADumpWithoutNumbersOfItsGroupsIsRead) {
  const std::string text =
      R"({"version": "2.8", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
          "entries": [{"profiling_name": "xccl:all_reduce", "state": "scheduled",
                       "process_group": ["0", "default"], "input_sizes": [[4, 4]],
                       "output_sizes": [[5, 4]], "input_dtypes": "float32",
                       "output_dtypes": "float32", "collective_seq_id": "1", "p2p_seq_id": "0"}]})";
  RankLists lists;
  const auto dump = flight_dump_of(text, "_dump_0.json", &lists);
  ASSERT_TRUE(dump) << to_text(dump.errors()[0]);
  EXPECT_EQ(dump.value().entries[0].sizes, "[[4,4]]->[[5,4]]");
  EXPECT_EQ(dump.value().entries[0].dtypes, "\"float32\"");
  EXPECT_FALSE(dump.value().entries[0].started || dump.value().tells_starts);
}

TEST(ExplainMismatch, WhatMayBeOfTheRankItselfIsNotSaidToBeOfItsPeers) {
  const auto origin = [](const char* line) { return origin_of_exception(line, false); };
  EXPECT_EQ(origin("torch.distributed.DistBackendError: NCCL error in: x.cpp:1333, unhandled cuda "
                   "error, NCCL version 2.18.1"),
            ExceptionOrigin::unclear);
  EXPECT_EQ(origin("torch.distributed.DistBackendError: NCCL error in: x.cpp:1691, remote process "
                   "exited or there was a network error"),
            ExceptionOrigin::communication);
  EXPECT_EQ(origin("RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:208] ifa != "
                   "nullptr. Unable to find address for: eth9"),
            ExceptionOrigin::own);
  EXPECT_EQ(origin("RuntimeError: [1]: params[0] in this process with sizes [4] appears not to "
                   "match sizes of the same param in process 0."),
            ExceptionOrigin::unclear);
  EXPECT_EQ(origin("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): "
                   "Max retries exceeded"),
            ExceptionOrigin::own);
}

}  // namespace
}  // namespace lockstep
