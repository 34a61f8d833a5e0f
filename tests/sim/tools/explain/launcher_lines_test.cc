#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/tools/explain/dump.h"
#include "sim/tools/explain/file_rank.h"
#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/log_exception.h"
#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

FlightFinding finding_of(const std::string& text) {
  JobEvidence job;
  add_log(&job, text);
  return attribute_job(job);
}

bool mentions(const std::vector<std::string>& texts, const std::string& words) {
  for (const std::string& text : texts)
    if (text.find(words) != std::string::npos) return true;
  return false;
}

const std::string kPeerClosed =
    ":RuntimeError: [x/gloo/transport/tcp/pair.cc:534] Connection closed "
    "by peer [10.0.0.7]:37311\n";
const std::string kStuckWatchdog =
    "]:[E626 ProcessGroupNCCL.cpp:1375] [PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's "
    "watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
    "collectives.\n";
const std::string kNcclTimedOut =
    "[E626 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for "
    "600012 milliseconds before timing out.\n";

TEST(LauncherLines, AStuckWatchdogMakesACandidateNotAVictim) {
  const FlightFinding finding = finding_of("[rank3" + kStuckWatchdog + "[rank1]" + kPeerClosed);
  EXPECT_FALSE(finding.decided);
  EXPECT_EQ(finding.candidates, RankSet{3});
  EXPECT_EQ(finding.victims, RankSet{1});
  EXPECT_TRUE(mentions(finding.missing, "why the watchdog of rank 3 got stuck"));
  EXPECT_TRUE(mentions(finding.evidence, "rank 3 said (job.log:1)"));
}

TEST(LauncherLines, AWatchdogThatGotStuckAfterATimeOutIsAVictims) {
  const FlightFinding finding = finding_of("[rank3]:" + kNcclTimedOut + "[rank3" + kStuckWatchdog);
  EXPECT_FALSE(finding.candidates.contains(3));
  EXPECT_EQ(finding.victims, RankSet{3});
}

TEST(LauncherLines, WhoWasKilledBesideAStuckWatchdogIsNotNamed) {
  const FlightFinding finding = finding_of(
      "[rank3" + kStuckWatchdog +
      "mpirun noticed that process rank 1 with PID 11 on node a exited on signal 9 (Killed).\n");
  EXPECT_FALSE(finding.decided);
  EXPECT_EQ(finding.candidates, (RankSet{1, 3}));
}

TEST(LauncherLines, ALauncherThatBreaksItsLineStillNamesTheSignal) {
  for (const char* text :
       {"prterun noticed that process rank 2 with PID 1617008 on node cpu155 exited on\nsignal 11 "
        "(Segmentation fault).\n",
        "prterun noticed that process rank 2 with PID 2550555\non node n111 exited on signal 11 "
        "(Segmentation fault)\n"}) {
    const FlightFinding finding = finding_of(text);
    EXPECT_EQ(finding.kind, FlightClass::died) << text;
    EXPECT_EQ(finding.guilty, RankSet{2});
    EXPECT_EQ(finding.signal, 11);
  }
  // The signal of something else, later.
  EXPECT_FALSE(finding_of("prterun noticed that process rank 2 with PID 1 on node a exited on\n"
                          "\nsignal 11 (x)\n")
                   .decided);
}

TEST(LauncherLines, WhatMpirunSaysOfAnExitNamesACandidate) {
  for (const char* name : {"[[13241,1],3]", "[prterun-gpu013-1009179@1,3]"}) {
    const FlightFinding finding = finding_of(
        "mpirun detected that one or more processes exited with non-zero status, thus "
        "causing the job to be terminated. The first process to do so was:\n\n   "
        "Process name: " +
        std::string(name) + "\n   Exit code:    1\n");
    EXPECT_FALSE(finding.decided);
    EXPECT_EQ(finding.candidates, RankSet{3}) << name;
  }
  JobEvidence job;
  add_log(&job, "Traceback (most recent call last):\nValueError: no such file\n", "rank_3.log", 3);
  add_log(&job, "  Process name: [[13241,1],3]\n  Exit code:    1\n");
  EXPECT_EQ(attribute_job(job).guilty, RankSet{3});
}

TEST(LauncherLines, WhatAProgramSaysOfItsRankIsNoEnd) {
  EXPECT_TRUE(finding_of("[rank3]: process rank 3 is ready\n").candidates.empty());
}

TEST(LauncherLines, AKernelKnowsNoRanks) {
  JobEvidence job;
  add_log(
      &job,
      "[12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off "
      "the bus.\n[3] Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB\n"
      "Out of memory: Killed process 999 (mysqld) total-vm:1kB\n",
      "rank_3.log", 3);
  const FlightFinding finding = attribute_job(job);
  EXPECT_FALSE(finding.decided);
  EXPECT_TRUE(finding.candidates.empty());
  EXPECT_TRUE(mentions(finding.evidence, "NVRM: Xid"));
  EXPECT_TRUE(mentions(finding.evidence, "Killed process 4711"));
  EXPECT_FALSE(mentions(finding.evidence, "mysqld"));
}

TEST(LauncherLines, AKernelsOldLinesDoNotKeepARankFromBeingNamed) {
  const FlightFinding finding = finding_of(
      "NVRM: Xid (PCI:0000:3b:00): 31, pid=5, name=python\n"
      "mpirun noticed that process rank 1 with PID 11 on node a exited on signal 11 (x).\n");
  EXPECT_EQ(finding.guilty, RankSet{1});
  EXPECT_TRUE(mentions(finding.evidence, "at an unknown time"));
}

TEST(LauncherLines, WhoReportsThatCallsDifferIsNotSaidToHaveLostAPeer) {
  for (const char* line :
       {"host:77:99 [0] enqueue.cc:76 NCCL WARN Mismatched collective detected, please check your "
        "collective calls at and around rank 3.\n",
        "host:77:99 [0] net_socket.cc:9 NCCL WARN NET/Socket : peer 10.0.0.1<33> message truncated "
        ": receiving 1048576 bytes instead of 524288.\n",
        "host:77:99 [0] bootstrap.cc:9 NCCL WARN Message truncated : received 8 bytes instead of "
        "4\n"}) {
    const FlightFinding finding = finding_of(line);
    EXPECT_FALSE(finding.decided);
    EXPECT_TRUE(finding.candidates.empty());
    EXPECT_TRUE(mentions(finding.missing, "which rank called something else")) << line;
  }
}

TEST(LauncherLines, ARankWhoseDeviceHasNoAddressIsNoVictim) {
  const std::string said =
      "RuntimeError: [enforce fail at x/gloo/transport/tcp/device.cc:208] ifa != nullptr. Unable "
      "to find address for: eth9\n";
  EXPECT_EQ(origin_of_exception(said, false), ExceptionOrigin::own);
  JobEvidence job;
  add_log(&job, "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"t.py\", line 1\n" +
                    ("[rank2]: " + said) + "[rank1]" + kPeerClosed);
  const FlightFinding finding = attribute_job(job);
  EXPECT_EQ(finding.guilty, RankSet{2});
  EXPECT_EQ(finding.victims, RankSet{1});
  EXPECT_TRUE(finding_of("[rank2]: " + said).victims.empty());
}

// Of a Gloo job of `ranks` ranks under torchrun: those in `dumps` left one, in which all of them
// are in collective 4.
JobEvidence gloo_job(int64_t ranks, const RankSet& dumps) {
  JobEvidence job;
  for (const int64_t rank : dumps) {
    FlightDump dump;
    dump.rank = rank;
    dump.ranks_at_least = ranks;
    for (int64_t sequence = 1; sequence <= 4; ++sequence) {
      FlightEntry entry;
      entry.record = sequence - 1;
      entry.sequence = sequence;
      entry.group = "0";
      entry.operation = "all_reduce";
      entry.gloo = entry.done = true;
      dump.entries.push_back(entry);
    }
    dump.groups["0"] = {};
    job.dumps.push_back(std::move(dump));
  }
  return job;
}

std::string ended(int64_t rank, const std::string& code) {
  const std::string number = std::to_string(rank);
  return "  time      : 2026-11-27_19:17:49\n  rank      : " + number + " (local_rank: " + number +
         ")\n  exitcode  : " + code + " (pid: 1905)\n";
}

const std::string kGlooTimedOut =
    "[rank0]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 4000ms for recv operation to complete\n";

TEST(Torchrun, WhomItEndedAndForWhomAloneAllOthersWaitedIsNamed) {
  for (const char* code : {"-15", "143"}) {
    JobEvidence job = gloo_job(3, {0, 2});
    add_log(&job, kGlooTimedOut + ended(1, code) + ended(0, "1"));
    const FlightFinding finding = attribute_job(job);
    EXPECT_EQ(finding.kind, FlightClass::silent) << code;
    EXPECT_EQ(finding.guilty, RankSet{1});
    EXPECT_EQ(finding.victims, RankSet{0});
  }
}

// Who does not heed SIGTERM, torchrun kills.
TEST(Torchrun, WhomItHadToKillIsNamedTheSameWay) {
  const std::string forced =
      "Unable to shutdown process 1905 via Signals.SIGTERM, forcefully exiting via "
      "Signals.SIGKILL\n";
  JobEvidence job = gloo_job(3, {0, 2});
  add_log(&job, kGlooTimedOut + forced + ended(1, "-9") + ended(0, "1"));
  EXPECT_EQ(attribute_job(job).kind, FlightClass::silent);
  EXPECT_EQ(attribute_job(job).guilty, RankSet{1});
}

TEST(Torchrun, WhomItEndedIsNotNamedWhereAnythingElseMayBe) {
  const auto undecided = [](JobEvidence job, const std::string& log) {
    add_log(&job, log);
    const FlightFinding finding = attribute_job(job);
    return !finding.decided && finding.guilty.empty();
  };
  const std::string terminated = ended(1, "-15"), failed = ended(0, "1");
  EXPECT_TRUE(undecided(gloo_job(3, {0}), kGlooTimedOut + terminated + failed));  // 2 is missing
  EXPECT_TRUE(undecided(gloo_job(3, {0, 2}), terminated + failed));               // no time-out
  EXPECT_TRUE(undecided(gloo_job(3, {0, 2}), kGlooTimedOut + failed));            // not ended
  EXPECT_TRUE(undecided(gloo_job(4, {0, 2}),                                      // two were
                        kGlooTimedOut + terminated + ended(3, "-15") + failed));
  EXPECT_TRUE(undecided(gloo_job(3, {0, 2}), kGlooTimedOut + "[rank1]" +
                                                 kPeerClosed +  // not silent
                                                 terminated + failed));
  EXPECT_TRUE(undecided(gloo_job(3, {0, 2}), kGlooTimedOut + ended(1, "1") + failed));  // by itself
  JobEvidence behind = gloo_job(4, {0, 2, 3});  // 3 did not come either
  behind.dumps[2].entries.pop_back();
  EXPECT_TRUE(undecided(std::move(behind), kGlooTimedOut + terminated + failed));
}

TEST(FileNames, ADumpsRankIsFoundInWhatPeopleCallIt) {
  const std::vector<std::pair<const char*, int64_t>> names = {
      {"rank-7-of-8.pkl", 7},   {"dump_r7.bin", 7},     {"nccl_trace_rank_7", 7},
      {"dump_7_of_16", 7},      {"dump.7", 7},          {"rank_7_world_size_16.json", 7},
      {"dump_7.v2.pkl", 7},     {"rank_7/dump.pkl", 7}, {"rank_7_attempt_2.pickle", 7},
      {"job/Rank7/fr.trace", 7}};
  for (const auto& [name, rank] : names) EXPECT_EQ(rank_of_dump(name).value_or(-1), rank) << name;
  for (const char* name : {"dump.pkl", "rank_3_dump_7.pkl", "ranks/dump.pkl", "worker-0.pkl",
                           "node_3.json", "local_rank_2.pkl", "host3_4.d/host-4.pickle"})
    EXPECT_FALSE(rank_of_dump(name)) << name;
  EXPECT_EQ(rank_in_name("logs/log_3_of_8.txt").rank, 3);
  EXPECT_EQ(rank_in_name("logs/rank-3-of-8.log").rank, 3);
}

std::string dump_of_version(const std::string& version) {
  return R"({"version": ")" + version +
         R"(", "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0, 1]"}}, "entries": []})";
}

TEST(DumpVersions, AreReadOrRefusedWithAReason) {
  RankLists lists;
  for (const char* version : {"1.4", "1.9", "2.0", "2.4", "2.10", "2.11", "2.23"})
    EXPECT_TRUE(flight_dump_of(dump_of_version(version), "_dump_1", &lists)) << version;
  for (const char* version : {"1.0", "1.3", "3.0", "2", "", "2.x"}) {
    const auto dump = flight_dump_of(dump_of_version(version), "_dump_1", &lists);
    ASSERT_FALSE(dump) << version;
    EXPECT_NE(dump.errors()[0].allowed.find("1.4 to 2.x"), std::string::npos);
  }
  const auto old = flight_dump_of("[{\"seq_id\": 1}]", "_dump_1", &lists);
  ASSERT_FALSE(old);
  EXPECT_NE(old.errors()[0].message.find("PyTorch 2.2"), std::string::npos);
}

std::string timed_out_of(const std::string& library) {
  return R"({"version": "2.4", "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0, 1]"}},
    "entries": [{"record_id": 0, "pg_id": 0, "process_group": ["0", "d"], "collective_seq_id": 1,
    "p2p_seq_id": 0, "op_id": 1, "profiling_name": ")" +
         library + R"(:all_reduce", "state": "started", "retired": true, "is_p2p": false}]})";
}

TEST(DumpVersions, WhatIsNoLongerWaitedForTimedOutInAllOfNcclsKin) {
  RankLists lists;
  for (const auto& [library, done] : std::vector<std::pair<const char*, bool>>{
           {"nccl", false}, {"rccl", false}, {"hccl", false}, {"xccl", false}, {"gloo", true}}) {
    const auto dump = flight_dump_of(timed_out_of(library), "_dump_1", &lists);
    ASSERT_TRUE(dump) << library;
    EXPECT_EQ(dump.value().entries[0].done, done) << library;
  }
}

}  // namespace
}  // namespace lockstep
