#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/join/coordinator.h"
#include "sim/join/rendezvous.h"
#include "sim/join/site.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return deadline_after(milliseconds(5000)); }

MemberIdentity member_with(std::vector<int64_t> ranks, const std::string& host) {
  return {"", "about", "", std::move(ranks), host, "here"};
}

// Coordinator and members in one loop, over real TCP on loopback.
class CoordinatorTest : public testing::Test {
 protected:
  void open(int64_t world_size, const std::string& key = "the job's key") {
    coordinator_.reset();
    auto opened = open_coordinator(loop_, Rendezvous{}, "",
                                   {world_size,
                                    {key, "job"},
                                    "about",
                                    "",
                                    "",
                                    [this](const std::string& what) { told_ += what + "\n"; }},
                                   nullptr, &at_);
    ASSERT_TRUE(opened);
    coordinator_ = std::move(opened.value());
    key_ = key;
    told_.clear();
  }
  std::unique_ptr<Link> join(std::vector<int64_t> ranks, const std::string& host = "h",
                             const std::string& identity = "job") {
    return join_run(loop_, at_, nullptr, member_with(std::move(ranks), host), {key_, identity},
                    soon(), [](const std::string&) {});
  }
  RunPlan begin_run(int64_t world_size) {
    RunPlan plan;
    plan.scenario.world_size = world_size;
    plan.goldens = {"replay"};
    coordinator_->begin_run(0, plan, testing::TempDir());
    return plan;
  }
  // A member that says this is closed; the others go on.
  void expect_lost(Link& link, const Link::Message& message) {
    try {
      link.request(message, soon());
      ADD_FAILURE() << message[0];
    } catch (const RunOver& over) {
      EXPECT_THAT(over.what(), testing::HasSubstr("the process of rank 0")) << message[0];
    }
  }
  EventLoop loop_;
  HostPort at_;
  std::string key_, told_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, MembersLearnWhereAllAre) {
  open(3);
  auto first = join({0, 1});
  EXPECT_EQ(coordinator_->missing_ranks(), "2");
  auto second = join({2}, "other");
  const std::string hosts = second->get("hosts", soon());
  const Topology here = topology_of(hosts, {0, 1}), there = topology_of(hosts, {2});
  EXPECT_FALSE(here.one_host);
  EXPECT_FALSE(here.one_network);
  EXPECT_EQ(first->get("reached_at", soon()), "");
  EXPECT_TRUE(here.leads_host && there.leads_host);
  EXPECT_EQ(here.host_ranks, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(here.collects);
  EXPECT_FALSE(there.collects);
  EXPECT_EQ(there.host_leader, 2);
}

TEST_F(CoordinatorTest, NodesOfOneMachineShareItsLoopback) {
  open(2);
  auto first = join({0}, host_key(0)), second = join({1}, host_key(1));
  const Topology topology = topology_of(first->get("hosts", soon()), {0});
  EXPECT_FALSE(topology.one_host);
  EXPECT_TRUE(topology.one_network);
}

TEST_F(CoordinatorTest, WhoDoesNotBelongIsRefused) {
  for (const auto& [ranks, identity, why] :
       std::vector<std::tuple<std::vector<int64_t>, std::string, std::string>>{
           {{0}, "job", "rank 0 has joined already"},
           {{2}, "job", "there is no rank 2 among 2"},
           {{1}, "another", "it has \"another\", rank 0 has \"job\""}}) {
    open(2);
    auto first = join({0});
    try {
      join(ranks, "h", identity);
      ADD_FAILURE() << why;
    } catch (const RunOver& over) {
      EXPECT_EQ(over.code(), 2);
      EXPECT_THAT(over.what(), testing::HasSubstr(why));
    }
    // It will not come again, so the others need not wait for it.
    EXPECT_THAT(coordinator_->problem(), testing::HasSubstr(why));
    try {
      first->get("hosts", soon());
      ADD_FAILURE() << why;
    } catch (const RunOver& over) {
      EXPECT_EQ(over.code(), 2);
      EXPECT_EQ(over.what(), coordinator_->problem());
    }
  }
}

// Without a key it may have been a stranger: the others are still awaited.
TEST_F(CoordinatorTest, WithoutAKeyARefusedOneEndsNothing) {
  for (const auto& [ranks, identity] : std::vector<std::pair<std::vector<int64_t>, std::string>>{
           {{0}, "job"}, {{2}, "job"}, {{1}, "another"}}) {
    open(2, "");
    auto first = join({0});
    EXPECT_THROW(join(ranks, "h", identity), RunOver);
    EXPECT_EQ(coordinator_->problem(), "");
    EXPECT_THAT(told_, testing::HasSubstr("refused to let 127.0.0.1 join: "));
    auto second = join({1});
    EXPECT_NE(first->get("hosts", soon()), "");
  }
}

TEST_F(CoordinatorTest, WithoutTheKeyNobodyJoins) {
  open(2);
  auto first = join({0});
  for (const char* key : {"", "another job's key"}) {
    try {
      join_run(loop_, at_, nullptr, member_with({1}, "h"), {key, "job"}, soon(),
               [](const std::string&) {});
      ADD_FAILURE() << key;
    } catch (const RunOver& over) {
      EXPECT_EQ(over.code(), 2);
      EXPECT_STREQ(over.what(), "refused: it does not know the job's key");
    }
  }
  EXPECT_EQ(coordinator_->problem(), "");
  auto second = join({1});
  EXPECT_NE(first->get("hosts", soon()), "");
}

TEST_F(CoordinatorTest, WhoComesTooLateDisturbsNobody) {
  open(1);
  auto first = join({0});
  EXPECT_THROW(join({0}), RunOver);
  EXPECT_EQ(coordinator_->problem(), "");
  EXPECT_NE(first->get("hosts", soon()), "");
}

TEST_F(CoordinatorTest, WaitingMayEndEarly) {
  open(1);
  coordinator_.reset();
  const auto stop = [](const std::string& why) { throw std::runtime_error(why); };
  EXPECT_THROW(join_run(loop_, at_, nullptr, {}, {}, soon(), stop), std::runtime_error);
}

TEST_F(CoordinatorTest, ServesTheStore) {
  open(2);
  auto first = join({0}), second = join({1});
  bool called = false;
  first->when_set("run/0/store/key", [&] { called = true; });
  second->set("run/0/store/key", std::string("\0\xff", 2), soon());
  EXPECT_EQ(first->get("run/0/store/key", soon()), std::string("\0\xff", 2));
  EXPECT_TRUE(called);
  Link::Message answer;
  first->on_reply([&](int64_t client, const Link::Message& reply) {
    EXPECT_EQ(client, 7);
    answer = reply;
  });
  first->forward(7, {"add", "9", "n", "4"}, "run/0/store/");
  EXPECT_EQ(second->request({"add", "run/0/store/n", "1"}, soon()).front(), "5");
  EXPECT_EQ(answer, (Link::Message{"9", "4"}));
  EXPECT_THROW(first->get("absent", deadline_after(milliseconds(20))), RunOver);
}

TEST_F(CoordinatorTest, ALostMemberLosesItsRanks) {
  open(2);
  auto first = join({0}), second = join({1});
  begin_run(2);
  ProcessEnd good;
  good.who = "rank-0";
  good.rank = 0;
  good.exit_code = 0;
  first->request({"end", "0", encode(good)}, soon());
  first->request({"done", "0"}, soon());
  EXPECT_FALSE(coordinator_->run_over());
  second.reset();
  EXPECT_EQ(first->get("run/0/failure", soon()), "rank-1");
  EXPECT_TRUE(coordinator_->run_over());
  const RunOutcome outcome = coordinator_->take_outcome();
  ASSERT_EQ(outcome.ends.size(), 2u);
  EXPECT_TRUE(outcome.ends[1].lost);
  EXPECT_EQ(outcome.ends[1].signal, 0);  // nobody saw how it ended
}

TEST_F(CoordinatorTest, AMemberLeavesTheFilesOfItsOwnRanksAlone) {
  for (const char* name :
       {"../rank-1.records", "rank-0.records", "rank-10.records", "rank-1.", "rank-1.records/x",
        "golden-replay.records", "plan.json", "rank-1.sh", "rank-1..log", ""}) {
    open(2);
    auto first = join({0}), second = join({1}, "another host");
    begin_run(2);
    expect_lost(*second, {"file", "0", name, "x"});
  }
  open(2);
  auto first = join({0}), second = join({1}, "another host");
  begin_run(2);
  EXPECT_EQ(second->request({"file", "0", "rank-1.log", "x"}, soon()).front(), "ok");
  expect_lost(*first, {"file", "0", "rank-0.log", "x"});  // it lies there already
}

TEST_F(CoordinatorTest, AMemberSpeaksForItsOwnRanksAlone) {
  const auto end_of = [](const std::string& who, int64_t rank) {
    ProcessEnd end;
    end.who = who;
    end.rank = rank;
    end.exit_code = 0;
    return encode(end);
  };
  for (const std::string& end :
       {end_of("rank-0", 0), end_of("rank-0", 1), end_of("rank-1", 0), end_of("rank-2", 2),
        end_of("golden-float64", -1), end_of("rank-1", -1), end_of("", -2), std::string("{}")}) {
    open(2);
    auto first = join({0}), second = join({1});
    begin_run(2);
    expect_lost(*second, {"end", "0", end});
    EXPECT_EQ(first->get("run/0/failure", soon()), "rank-1");
  }
  open(2);
  auto first = join({0}), second = join({1});
  begin_run(2);
  EXPECT_EQ(second->request({"end", "0", end_of("rank-1", 1)}, soon()).front(), "ok");
  EXPECT_EQ(second->request({"end", "0", end_of("golden-replay", -1)}, soon()).front(), "ok");
  expect_lost(*second, {"end", "0", end_of("rank-1", 1)});  // it has ended once
}

TEST_F(CoordinatorTest, AMemberSetsItsOwnKeysAlone) {
  for (const char* key : {"hosts", "reached_at", "run/0/go", "run/0/failure", "run/0/dir/0",
                          "out/0", "run/1/store/x", "", "anything"}) {
    open(2);
    auto first = join({0}), second = join({1});
    EXPECT_NE(first->get("hosts", soon()), "");
    begin_run(2);
    expect_lost(*second, {"set", key, "[]"});
  }
  open(2);
  auto first = join({0}), second = join({1});
  begin_run(2);
  for (const char* key : {"run/0/store/x", "run/0/dir/1", "out/1"})
    second->set(key, "value", soon());
}

TEST(TopologyOf, NoListOfMembersIsAnError) {
  for (const char* hosts : {"[]", "", "{}", "[1]", "[[", "[{\"ranks\": []}]"})
    EXPECT_THROW(topology_of(hosts, {0}), RunOver) << hosts;
  const MemberIdentity own = member_with({0, 1}, "h");
  EXPECT_EQ(topology_of(encode(std::vector{own}), {0, 1}).host_ranks.size(), 2u);
  EXPECT_THROW(topology_of(encode(std::vector{own}), {2}), RunOver);
}

TEST_F(CoordinatorTest, TheEndIsToldToAll) {
  open(2);
  auto first = join({0}), second = join({1});
  coordinator_->end(1, "judged");
  for (Link* link : {first.get(), second.get()}) {
    try {
      link->get("never", soon());
      ADD_FAILURE();
    } catch (const RunOver& over) {
      EXPECT_EQ(over.code(), 1);
    }
  }
  first.reset();
  second.reset();
  for (int i = 0; i < 50 && !coordinator_->all_gone(); ++i) loop_.wait(milliseconds(10));
  EXPECT_TRUE(coordinator_->all_gone());
}

TEST_F(CoordinatorTest, AStrangersBytesCloseOnlyItsConnection) {
  open(1);
  std::string why;
  const UniqueFd stranger = connect_to(at_, soon(), &why);
  const std::string bytes(64, '\xff');
  EXPECT_EQ(::write(stranger.get(), bytes.data(), bytes.size()), 64);
  auto link = join({0});
  EXPECT_NE(link->get("hosts", soon()), "");
}

}  // namespace

}  // namespace lockstep
