#include "sim/launch/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

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
