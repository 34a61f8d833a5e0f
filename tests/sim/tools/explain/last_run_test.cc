#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/tools/explain/log_exception.h"
#include "sim/tools/explain/sources.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// Logs to which one run after another was written, as a loop of a shell does it: whoever ended in
// an earlier one is not to blame for the last. And whose an exception, or a record, is.

std::string raised_in_run(int64_t rank, const std::string& last) {
  return fmt::format(
      "[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File \"train.py\", line 7, in "
      "step\n[rank{0}]: {1}\n",
      rank, last);
}

std::string waited_in_run(int64_t rank) {
  return fmt::format(
      "[rank{0}]:[E904 23:21:18.043790828 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught "
      "collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, "
      "Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n",
      rank);
}

std::string part_of_run(int64_t rank, int64_t local, int64_t code, const std::string& time) {
  return fmt::format(
      "  time      : 2025-02-19_{}\n  rank      : {} (local_rank: {})\n  exitcode  : {} (pid: 9)\n",
      time, rank, local, code);
}

std::string table_of_run(const std::string& root) {
  return "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nRoot Cause (first "
         "observed failure):\n" +
         root;
}

const std::string kFirstRun =
    raised_in_run(3, "KeyError: 'input_ids'") + table_of_run(part_of_run(3, 3, 1, "17:36:20"));

TEST(LastRun, WhoWritesAfterTheTableOfItsNodeIsOfAnotherRun) {
  expect_as_written(
      {{"the first alone", kFirstRun, {3}},
       {"then another rank hangs",
        kFirstRun + waited_in_run(0) + waited_in_run(1) + waited_in_run(4)},
       {"then another rank ends", kFirstRun + raised_in_run(2, "ValueError: x"), {2}}});
}

TEST(LastRun, ASecondTableOfANodeIsOfAnotherRun) {
  const std::string second = table_of_run(part_of_run(5, 5, 1, "18:02:11"));
  expect_as_written(
      {{"raised", kFirstRun + raised_in_run(5, "ValueError: x") + second, {5}},
       {"killed twice",
        table_of_run(part_of_run(2, 2, -9, "17:36:20")) +
            table_of_run(part_of_run(4, 4, -9, "18:02:11")),
        {4}},
       {"printed twice", kFirstRun + table_of_run(part_of_run(3, 3, 1, "17:36:20")), {3}}});
}

TEST(LastRun, TablesOfSeveralNodesAreOfOne) {
  const std::string lost = raised_in_run(
      9, "torch.distributed.DistBackendError: NCCL error in: x.cpp:1691, remote process exited");
  const std::string node_1 = lost + table_of_run(part_of_run(9, 1, 1, "17:36:24"));
  expect_as_written(
      {{"the first failed", kFirstRun + node_1, {3}},
       {"the second failed",
        node_1 + raised_in_run(3, "KeyError: 'x'") + table_of_run(part_of_run(3, 3, 1, "17:36:20")),
        {3}},
       {"both, and then again",
        table_of_run(part_of_run(1, 1, 1, "17:36:20")) +
            table_of_run(part_of_run(9, 1, -9, "17:36:19")) + raised_in_run(1, "ValueError: x") +
            table_of_run(part_of_run(1, 1, 1, "18:02:11")),
        {1}}});
}

TEST(LastRun, TablesOfAnotherDayAreOfAnotherRun) {
  const std::string second =
      "  time      : 2025-02-20_09:00:01\n  rank      : 9 (local_rank: 1)\n"
      "  exitcode  : -11 (pid: 9)\n";
  expect_as_written(
      {{"of other nodes", kFirstRun + table_of_run(second), {9}},
       {"of one hour", kFirstRun + table_of_run(part_of_run(9, 1, -11, "17:36:20"))}});
}

TEST(LastRun, DeepSpeedsLauncherSaysThatANodeBegins) {
  const auto begins = [](int64_t node) {
    return fmt::format(
        "[2025-02-19 17:30:01,101] [INFO] [launch.py:152:main] nnodes=2, num_local_procs=8, "
        "node_rank={}\n",
        node);
  };
  const std::string failed = raised_in_run(3, "KeyError: 'input_ids'");
  const std::string both = begins(0) + begins(1);
  expect_as_written(
      {{"once", both + failed + waited_in_run(0), {3}},
       {"a node that begins late", begins(0) + failed + begins(1) + waited_in_run(0), {3}},
       {"again", both + failed + both + waited_in_run(0)},
       {"again, in another order", both + failed + begins(1) + begins(0) + waited_in_run(0)}});
}

TEST(LastRun, OfSlurmsJobsTheLastCounts) {
  const TemporaryFolder folder;
  folder.write("slurm-99.out", kFirstRun);
  folder.write("slurm-100.out", waited_in_run(0) + waited_in_run(1) + waited_in_run(4));
  const auto job = read_job({folder.path()});
  ASSERT_TRUE(job);
  const FlightFinding found = attribute_job(job.value());
  EXPECT_EQ(found.guilty, RankSet{});
  EXPECT_EQ(found.victims, (RankSet{0, 1, 4}));
  EXPECT_EQ(std::count(found.evidence.begin(), found.evidence.end(),
                       "not read, being of an earlier job: slurm-99.out"),
            1);
}

TEST(LastRun, JobsThatTellOfOtherRanksMayBeItsNodes) {
  const TemporaryFolder folder;
  folder.write("slurm-99.out", kFirstRun);
  folder.write("slurm-100.out", waited_in_run(8) + waited_in_run(9));
  const auto job = read_job({folder.path()});
  ASSERT_TRUE(job);
  EXPECT_EQ(attribute_job(job.value()).guilty, RankSet{3});
}

// What a rank raises because of others names these in many ways.
TEST(OwnOrOthers, ExceptionsThatTellOfOthersAreNotTheRanksOwn) {
  for (const char* last :
       {"OSError: [Errno 113] No route to host", "OSError: [Errno 101] Network is unreachable",
        "socket.gaierror: [Errno -2] Name or service not known",
        "asyncio.exceptions.IncompleteReadError: 0 bytes read on a total of 4 expected bytes",
        "websockets.exceptions.ConnectionClosedError: no close frame received or sent",
        "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:",
        "Pyro5.errors.CommunicationError: cannot reach it",
        "etcd3.exceptions.ConnectionFailedError", "RuntimeError: Another process failed, stopping",
        "torch.distributed.elastic.rendezvous.api.RendezvousError",
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy "
        "(stopped sending heartbeats):",
        "RuntimeError: failed to connect to node-0", "RuntimeError: all workers died",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB "
        "memory."}) {
    EXPECT_EQ(origin_of_exception(last, false), ExceptionOrigin::unclear) << last;
    expect_as_written({{last, raised_in_run(0, last) + waited_in_run(1)}});
  }
  for (const char* last : {"RuntimeError: Unreachable code", "KeyError: 'node'",
                           "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation "
                           "failed for size::3288334336 (3136)MB"})
    EXPECT_EQ(origin_of_exception(last, false), ExceptionOrigin::own) << last;
}

TEST(OwnOrOthers, MemoryIsItsOwnOnAnyDevice) {
  for (const char* device : {"CUDA", "HIP", "XPU"}) {
    const std::string last = fmt::format(
        "[rank3]: torch.OutOfMemoryError: {} out of memory. Tried to allocate ", device);
    expect_as_written({{device, last + "2.00 GiB.\n" + waited_in_run(0), {3}},
                       {"of a size that was received", last + "more than 1EB memory.\n"}});
  }
}

// One record of sglang's scheduler, whose lines but the first name nobody.
std::string sglang_scheduler(const std::string& whose, const std::string& last) {
  return "[2025-01-29 08:52:44 " + whose +
         "] Scheduler hit an exception: Traceback (most recent call last):\n  File "
         "\"scheduler.py\", line 2311, in run_scheduler_process\n    "
         "scheduler.event_loop_overlap()\n" +
         last + "\n\n[2025-01-29 08:52:45] Received sigquit from a child process.\n";
}

TEST(SglangRecords, SchedulersSayWhoseTheyAre) {
  const std::string memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.";
  const std::string lost =
      "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:4";
  expect_as_written(
      {{"alone", sglang_scheduler("TP3", memory), {3}},
       {"of experts", sglang_scheduler("TP3 EP3", memory), {3}},
       {"the others lost it", sglang_scheduler("TP3", memory) + sglang_scheduler("TP0", lost), {3}},
       {"who lost another", sglang_scheduler("TP0", lost)},
       {"two of them", sglang_scheduler("TP3", memory) + sglang_scheduler("TP1", memory)},
       {"a place in a mesh", sglang_scheduler("DP1 TP3", memory)},
       {"one of several engines", "(Engine pid=47) " + sglang_scheduler("TP3", memory)},
       {"an exception that it logs",
        "[2025-01-29 08:52:44 TP3] Traceback (most recent call last):\n  File \"a.py\", line 1\n" +
            memory + "\n"}});
}

}  // namespace
}  // namespace lockstep
