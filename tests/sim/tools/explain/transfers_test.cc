#include "sim/tools/explain/flight_transfers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"

namespace lockstep {
namespace {

// Dumps of a job whose stages, ranks 2, 4 and 6 of 7, are a group.
class Stages {
 public:
  Stages() {
    for (int64_t rank = 0; rank < 7; ++rank) {
      FlightDump dump;
      dump.rank = rank;
      dump.groups["0"] = {"default_pg", ranks({0, 1, 2, 3, 4, 5, 6})};
      if (rank > 0 && rank % 2 == 0) dump.groups["stages"] = {"pp", ranks({2, 4, 6})};
      dumps.push_back(dump);
      FlightEntry all;
      all.group = "0";
      all.operation = "all_reduce";
      all.sequence = 1;
      all.done = true;
      add(rank, all);
    }
  }

  // By numbers within the group.
  void send(int64_t source, int64_t destination, bool done) {
    transfer(source, destination, true, done);
  }
  void receive(int64_t destination, int64_t source, bool done) {
    transfer(destination, source, false, done);
  }
  void lose_the_first() {
    for (FlightDump& dump : dumps)
      for (FlightEntry& entry : dump.entries) entry.record += 100;
  }

  std::vector<FlightDump> dumps;

 private:
  static RankList ranks(std::vector<int64_t> ranks) {
    return std::make_shared<std::vector<int64_t>>(std::move(ranks));
  }
  void add(int64_t rank, FlightEntry entry) {
    std::vector<FlightEntry>& entries = dumps[static_cast<size_t>(rank)].entries;
    entry.record = static_cast<int64_t>(entries.size());
    entries.push_back(std::move(entry));
  }
  void transfer(int64_t own, int64_t peer, bool sends, bool done) {
    FlightEntry entry;
    entry.group = "stages";
    entry.operation = sends ? "send" : "recv";
    entry.point_to_point = true;
    entry.sends = sends;
    entry.own_number = own;
    entry.peer = peer;
    entry.done = done;
    entry.timeout_ms = 600'000;
    entry.point_to_point_sequence = ++numbers_[own];
    add(2 + 2 * own, entry);
  }

  std::map<int64_t, int64_t> numbers_;
};

TEST(ExplainTransfers, WhoWaitsForNobodyAndCalledNothingIsGuilty) {
  Stages job;
  job.receive(1, 0, false);
  job.receive(2, 1, false);
  const FlightFinding found = attribute(job.dumps);
  EXPECT_TRUE(found.decided);
  EXPECT_EQ(found.guilty, RankSet{2});
  EXPECT_EQ(found.victims, (RankSet{4, 6}));
  EXPECT_EQ(found.kind, FlightClass::never_entered);
  EXPECT_EQ(found.operation, "recv");
  EXPECT_EQ(found.description, "pp");
  ASSERT_EQ(found.evidence.size(), 1U);
  EXPECT_EQ(found.evidence[0],
            "rank 2 never called its side of recv 1 of group stages (pp): rank 4");
}

// A ring that has lost calls may have lost that one; two that wait for the same rank do not wait
// for what a link lost.
TEST(ExplainTransfers, OfShortRingsOnlyWhoKeepsTwoIsNamed) {
  Stages job;
  job.receive(1, 0, false);
  job.lose_the_first();
  EXPECT_FALSE(attribute(job.dumps).decided);
  EXPECT_EQ(attribute(job.dumps).candidates, RankSet{2});
  EXPECT_EQ(attribute(job.dumps).victims, RankSet{4});
  job.receive(2, 0, false);
  EXPECT_TRUE(attribute(job.dumps).decided);
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{2});
}

TEST(ExplainTransfers, WhoWaitsElsewhereIsAVictim) {
  Stages job;
  job.receive(1, 0, false);
  job.send(0, 2, false);
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{6});
  EXPECT_EQ(attribute(job.dumps).victims, (RankSet{2, 4}));
}

TEST(ExplainTransfers, WhatBothCalledAccusesNobody) {
  Stages job;
  job.receive(1, 0, false);
  job.send(0, 1, false);
  EXPECT_FALSE(attribute(job.dumps).decided);
  EXPECT_TRUE(attribute(job.dumps).guilty.empty());
  EXPECT_EQ(attribute(job.dumps).victims, (RankSet{2, 4}));
}

// Where starts are told: the GPU of rank 2 is kept by something else.
TEST(ExplainTransfers, WhoseGpuNeverBeganWhatItsPeersDidIsGuilty) {
  Stages job;
  job.send(0, 1, false);
  job.receive(1, 0, false);
  job.dumps[4].entries.back().started = true;
  EXPECT_FALSE(attribute(job.dumps).decided);
  for (FlightDump& dump : job.dumps) dump.tells_starts = true;
  const FlightFinding found = attribute(job.dumps);
  EXPECT_EQ(found.kind, FlightClass::not_started);
  EXPECT_EQ(found.guilty, RankSet{2});
  EXPECT_EQ(found.victims, RankSet{4});
  job.dumps[2].entries.back().started = true;
  EXPECT_FALSE(attribute(job.dumps).decided);
}

TEST(ExplainTransfers, WhoCalledNothingAtAllEnteredNothing) {
  Stages job;
  FlightEntry all = job.dumps[0].entries.front();
  all.done = false;
  for (FlightDump& dump : job.dumps) dump.entries = {all};
  job.dumps[3].entries.clear();
  EXPECT_FALSE(attribute(job.dumps).decided);
  job.dumps[3].called_nothing = true;
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{3});
}

// Behind a call of its own that waits: rank 2 never came to what rank 4 waits for.
TEST(ExplainTransfers, WhatIsKeptByAnEarlierCallWaitsForThatOnesPeer) {
  Stages job;
  job.receive(0, 2, false);
  job.send(0, 1, false);
  job.receive(1, 0, false);
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{6});
  EXPECT_EQ(attribute(job.dumps).victims, (RankSet{2, 4}));
}

// What left one rank and did not come to the other was lost between them.
TEST(ExplainTransfers, WhoIsDoneWithAsManyAsItsPeerCalledIsNotAccused) {
  Stages job;
  job.send(0, 1, true);
  job.receive(1, 0, false);
  EXPECT_FALSE(attribute(job.dumps).decided);
  EXPECT_TRUE(attribute(job.dumps).guilty.empty());
  job.receive(1, 0, false);  // two, of one that was sent
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{2});
}

// As in a hang of NVRx's test traces: who is named for a collective is not doubted for a transfer.
TEST(ExplainTransfers, OfWhoMissedACollectiveATransferIsNotDoubted) {
  Stages job;
  job.receive(1, 0, false);
  FlightEntry all = job.dumps[0].entries.front();
  all.sequence = 2;
  all.done = false;
  for (FlightDump& dump : job.dumps) {
    if (dump.rank % 2 != 0 || dump.rank == 6) dump.entries.push_back(all);
    for (FlightEntry& entry : dump.entries) entry.record += 100;
  }
  EXPECT_TRUE(attribute(job.dumps).decided);
  EXPECT_EQ(attribute(job.dumps).guilty, (RankSet{0, 2}));
  EXPECT_TRUE(attribute(job.dumps).victims.contains(4));
}

// What waits behind another call of its own says nothing of the peer.
TEST(ExplainTransfers, OnlyTheFirstOpenCallOfARankTellsForWhomItWaits) {
  Stages job;
  job.receive(1, 0, false);
  job.receive(1, 2, false);
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{2});
}

TEST(ExplainTransfers, WithoutADumpOfTheOtherSideNobodyIsAccused) {
  Stages job;
  job.receive(1, 0, false);
  job.dumps.erase(job.dumps.begin() + 2);
  EXPECT_FALSE(attribute(job.dumps).decided);
  EXPECT_TRUE(attribute(job.dumps).candidates.contains(2));
}

TEST(ExplainTransfers, NumbersThatAreNotTheRanksOwnSayNothing) {
  Stages job;
  job.receive(1, 0, false);
  job.dumps[4].entries.back().own_number = 2;
  EXPECT_FALSE(attribute(job.dumps).decided);
  EXPECT_TRUE(attribute(job.dumps).guilty.empty());
}

TEST(ExplainTransfers, AWholeDumpWithoutACallOfAGroupEnteredNoneOfItsCollectives) {
  Stages job;
  for (const size_t rank : {2, 4}) {
    FlightEntry entry;
    entry.record = 1;
    entry.group = "stages";
    entry.operation = "barrier";
    entry.sequence = 1;
    job.dumps[rank].entries.push_back(entry);
  }
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{6});
  job.lose_the_first();
  EXPECT_FALSE(attribute(job.dumps).decided);
}

std::string entry(int64_t record, const std::string& library, const std::string& operation,
                  const std::string& group, const std::string& description,
                  const std::string& rest) {
  return fmt::format(
      R"({{"record_id": {}, "pg_id": 0, "process_group": ["{}", "{}"], "profiling_name": "{}:{}",
           "collective_seq_id": {}, "p2p_seq_id": 0, {}}})",
      record, group, description, library, operation, record, rest);
}

FlightDump dump_of_transfers(const std::string& entries) {
  RankLists lists;
  const auto dump = flight_dump_of(R"({"version": "2.10", "pg_config": {}, "pg_status": {"0":
          {"last_enqueued_collective": 40, "last_completed_collective": 40}}, "entries": [)" +
                                       entries + "]}",
                                   "_dump_0.json", &lists);
  EXPECT_TRUE(dump);
  return dump ? dump.value() : FlightDump();
}

constexpr const char* kIssued = R"("is_p2p": false, "state": "scheduled", "retired": true)";
constexpr const char* kOpen = R"("is_p2p": false, "state": "scheduled", "retired": false)";

// PyTorch 2.15's default, and libraries that do not tell c10d's hook when a call is complete.
TEST(ExplainDump, OfAHooksRecordsRetiredIsNotDoneAndTheStatusCountsOtherwise) {
  const FlightDump nccl =
      dump_of_transfers(entry(1, "nccl2", "all_reduce", "0", "default_pg", kOpen));
  EXPECT_TRUE(nccl.status_differs);
  EXPECT_FALSE(nccl.entries[0].done || nccl.entries[0].gloo);
  const FlightDump ucc =
      dump_of_transfers(entry(1, "ucc", "all_reduce", "0", "default_pg", kIssued));
  EXPECT_TRUE(ucc.status_differs);
  EXPECT_TRUE(ucc.entries[0].gloo);
  const FlightDump own =
      dump_of_transfers(entry(1, "nccl", "all_reduce", "0", "default_pg", kIssued));
  EXPECT_FALSE(own.status_differs || own.entries[0].done);
}

TEST(ExplainDump, TorchcommsCallsAreNumberedByGroup) {
  const auto call = [](int64_t record, const char* group, const char* operation) {
    return entry(record, "ncclx", operation, group, "ncclx", kIssued);
  };
  const FlightDump whole =
      dump_of_transfers(call(0, "all", "all_reduce") + "," + call(1, "pair", "all_reduce") + "," +
                        call(2, "pair", "send") + "," + call(3, "all", "all_reduce"));
  ASSERT_EQ(whole.entries.size(), 4U);
  EXPECT_EQ(whole.entries[1].sequence, 1);
  EXPECT_EQ(whole.entries[3].sequence, 2);
  EXPECT_TRUE(whole.entries[2].point_to_point);
  EXPECT_TRUE(whole.entries[3].done);
  const FlightDump lost = dump_of_transfers(call(7, "all", "all_reduce"));
  EXPECT_TRUE(lost.lost_numbers && lost.entries.empty());
  EXPECT_FALSE(attribute({lost}).decided);
}

TEST(ExplainDump, WhatCalledNothingIsToldFromWhatDoesNotSay) {
  const auto read = [](const std::string& rest) {
    RankLists lists;
    return flight_dump_of(R"({"version": "2.10", "pg_config": {"0": {"desc": "default_pg", "ranks":
                              "[0, 1]"}}, )" +
                              rest + "}",
                          "_dump_0.json", &lists)
        .value()
        .called_nothing;
  };
  EXPECT_TRUE(read(R"("pg_status": {}, "entries": [])"));
  EXPECT_FALSE(read(R"("entries": [])"));
  EXPECT_FALSE(read(R"("pg_status": {"0": {"last_enqueued_collective": 4,
                       "last_completed_collective": 4}}, "entries": [])"));
}

TEST(ExplainDump, BothSidesOfATransferAreRead) {
  const auto transfer = [](const char* name) {
    return dump_of_transfers(
               entry(1, "nccl", name, "0", "pp", R"("is_p2p": true, "state": "started")"))
        .entries[0];
  };
  EXPECT_EQ(transfer("recv 1<-0").operation, "recv");
  EXPECT_EQ(transfer("recv 1<-0").own_number, 1);
  EXPECT_EQ(transfer("recv 1<-0").peer, 0);
  EXPECT_TRUE(transfer("send 3->12").sends);
  EXPECT_EQ(transfer("send 3->12").peer, 12);
  for (const char* name : {"recv 1<-?", "recv 1<--1", "send", "send ->2", "recvAnySource"})
    EXPECT_EQ(transfer(name).peer, -1) << name;
}

}  // namespace
}  // namespace lockstep
