#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <system_error>
#include <thread>

#include "sim/launch/protocol.h"
#include "tests/sim/launch/no_more_files.h"

namespace lockstep {
namespace {

TEST(Channel, CarriesAnyBytesAndADescriptor) {
  auto [left, right] = Channel::pair();
  const Channel::Message sent{"a", "", std::string("\0\n\xff", 3)};
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(left.send(sent, file.get()));
  Channel::Message got;
  UniqueFd passed;
  ASSERT_EQ(right.receive(&got, &passed), Channel::Got::message);
  EXPECT_EQ(got, sent);
  ASSERT_TRUE(passed.valid());
  EXPECT_EQ(::fcntl(passed.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(right.receive(&got), Channel::Got::nothing);
}

// Else a worker's pidfd would be missing, and nothing could end that worker.
TEST(Channel, ADescriptorThatIsDroppedAtTheLimitIsAnError) {
  auto [left, right] = Channel::pair();
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(left.send({"started"}, file.get()));
  ASSERT_TRUE(left.send({"without"}));
  Channel::Message got;
  UniqueFd passed;
  {
    const NoMoreFiles limit;
    EXPECT_THROW(right.receive(&got, &passed), std::system_error);
    EXPECT_EQ(right.receive(&got, &passed), Channel::Got::message);
  }
  EXPECT_EQ(got, Channel::Message{"without"});
}

TEST(Channel, CarriesWhatNoDatagramHolds) {
  auto ends = Channel::pair();
  const Channel::Message sent{"long", std::string(3'000'000, 'x')};
  std::thread writer([&] { EXPECT_TRUE(ends.first.send(sent)); });
  Channel::Message got;
  Channel::Got state;
  while ((state = ends.second.receive(&got)) == Channel::Got::nothing) std::this_thread::yield();
  writer.join();
  ASSERT_EQ(state, Channel::Got::message);
  EXPECT_EQ(got, sent);
}

TEST(Channel, NoticesThatTheOtherSideIsGone) {
  auto [left, right] = Channel::pair();
  ASSERT_TRUE(left.send({"last words"}));
  left.close();
  Channel::Message got;
  EXPECT_EQ(right.receive(&got), Channel::Got::message);
  EXPECT_EQ(right.receive(&got), Channel::Got::closed);
  EXPECT_FALSE(right.send({"x"}));
}

TEST(Channel, DoesNotWaitForeverForRoom) {
  auto [left, right] = Channel::pair();
  const Channel::Message piece{std::string(40'000, 'x')};
  bool took = true;
  for (int i = 0; i < 1000 && took; ++i) took = left.send(piece, -1, std::chrono::milliseconds(1));
  EXPECT_FALSE(took);
}

TEST(Channel, HalfAMessageIsTheEndOfAll) {
  auto [left, right] = Channel::pair();
  EXPECT_FALSE(left.send({std::string(30'000'000, 'x')}, -1, std::chrono::milliseconds(1)));
  EXPECT_FALSE(left.send({"next"}));
  Channel::Message got;
  EXPECT_EQ(right.receive(&got), Channel::Got::closed);
}

TEST(Protocol, TasksComeBackAsTheyWere) {
  const WorkerTask task{"golden", "float64", -1, "/tmp/with \"quotes\" and \n"};
  const auto back = decode_task(encode(task));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->role, task.role);
  EXPECT_EQ(back->golden, task.golden);
  EXPECT_EQ(back->rank, task.rank);
  EXPECT_EQ(back->run_dir, task.run_dir);
  EXPECT_FALSE(decode_task("{}").has_value());
  EXPECT_FALSE(decode_task("no json").has_value());
}

TEST(Protocol, NamesFitIntoWhatPsShows) {
  EXPECT_EQ(process_name({"rank", "", 12, ""}), "lockstep-r12");
  EXPECT_EQ(process_name({"golden", "one_device", -1, ""}), "lockstep-g-one_");
  EXPECT_EQ(process_name({"thread_host", "", 1, ""}), "lockstep-h1");
  EXPECT_EQ(process_label({"rounding", "rounding", -1, ""}), "golden-rounding");
}

using Answers = std::vector<std::pair<int64_t, Channel::Message>>;

class StoreTest : public testing::Test {
 protected:
  Answers ask(int64_t client, const Channel::Message& message) {
    answers_.clear();
    EXPECT_TRUE(store_.handle(client, message));
    return answers_;
  }
  Answers answers_;
  RunStore store_{[this](int64_t client, const Channel::Message& reply) {
    answers_.emplace_back(client, reply);
  }};
};

TEST_F(StoreTest, AParkedGetIsAnsweredWhenTheKeyIsSet) {
  EXPECT_EQ(ask(0, {"get", "1", "address"}), Answers{});
  EXPECT_EQ(ask(1, {"get", "9", "address"}), Answers{});
  const std::string value("\0\xff", 2);
  EXPECT_EQ(ask(2, {"set", "4", "address", value}),
            (Answers{{0, {"1", value}}, {1, {"9", value}}, {2, {"4", "ok"}}}));
  EXPECT_EQ(ask(0, {"get", "2", "address"}), (Answers{{0, {"2", value}}}));
  EXPECT_EQ(store_.parked(), 0u);
}

// Whoever adds: a process of our own, or a member that means no good.
TEST_F(StoreTest, SumsBeyondTheEdgeOfTheirTypeBeginAgainAtTheOther) {
  const std::string least = "-9223372036854775808";
  EXPECT_EQ(ask(0, {"add", "1", "n", least}), (Answers{{0, {"1", least}}}));
  EXPECT_EQ(ask(0, {"add", "2", "n", "-1"}), (Answers{{0, {"2", "9223372036854775807"}}}));
}

TEST_F(StoreTest, ParkedGetsOfTheDeadVanish) {
  ask(0, {"get", "1", "key"});
  ask(1, {"get", "1", "key"});
  store_.leave(0);
  EXPECT_EQ(ask(2, {"set", "1", "key", "v"}), (Answers{{1, {"1", "v"}}, {2, {"1", "ok"}}}));
}

TEST_F(StoreTest, AGetGivenUpIsNotAnswered) {
  ask(0, {"get", "1", "key"});
  ask(0, {"drop", "1", "key"});
  EXPECT_EQ(ask(1, {"set", "1", "key", "v"}), (Answers{{1, {"1", "ok"}}}));
}

TEST_F(StoreTest, AddCountsAndWakes) {
  EXPECT_EQ(ask(0, {"add", "1", "n", "2"}), (Answers{{0, {"1", "2"}}}));
  EXPECT_EQ(ask(0, {"add", "2", "n", "-5"}), (Answers{{0, {"2", "-3"}}}));
  EXPECT_EQ(ask(0, {"has", "3", "n"}), (Answers{{0, {"3", "1"}}}));
  EXPECT_EQ(ask(0, {"has", "4", "m"}), (Answers{{0, {"4", "0"}}}));
  ask(1, {"get", "1", "m"});
  EXPECT_EQ(ask(0, {"add", "5", "m", "1"}), (Answers{{1, {"1", "1"}}, {0, {"5", "1"}}}));
}

TEST_F(StoreTest, OtherMessagesAreNotItsOwn) {
  EXPECT_FALSE(store_.handle(0, {"next", "1"}));
  EXPECT_FALSE(store_.handle(0, {"what", "1", "key"}));
  EXPECT_FALSE(store_.handle(0, {}));
}

}  // namespace

}  // namespace lockstep
