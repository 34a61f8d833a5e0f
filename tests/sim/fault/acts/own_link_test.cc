#include "sim/fault/acts/own_link.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/quiet_time.h"

namespace lockstep {
namespace {

sockaddr_in address_of(const OwnLink& link) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(7000);
  inet_pton(AF_INET, link.address().c_str(), &address.sin_addr);
  return address;
}

// Namespaces are a thread's: two ranks as threads, one of which listens to the other.
class OwnLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    switch_ = RunSwitch::make(&why);
    if (!switch_) GTEST_SKIP() << why;
    std::thread([&] { first_ = listen_at(0); }).join();
    std::thread([&] {
      second_ = OwnLink::join(switch_->path(), 251);
      connect_to_first();
    }).join();
    from_second_ = UniqueFd(accept(listener_.get(), nullptr, nullptr));
  }

  std::unique_ptr<OwnLink> listen_at(int64_t rank) {
    auto link = OwnLink::join(switch_->path(), rank);
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = address_of(*link);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    return link;
  }

  void connect_to_first() {
    to_first_ = UniqueFd(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = address_of(*first_);
    ASSERT_EQ(connect(to_first_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }

  static bool readable(const UniqueFd& socket, int patience_ms) {
    pollfd wanted{socket.get(), POLLIN, 0};
    return poll(&wanted, 1, patience_ms) == 1;
  }
  static bool arrives(const UniqueFd& to, const UniqueFd& from, int patience_ms) {
    char byte = 1;
    EXPECT_EQ(write(from.get(), &byte, 1), 1);
    return readable(to, patience_ms) && read(to.get(), &byte, 1) == 1;
  }

  // Seconds until so many bytes of the second rank have arrived: at least, and as QuietTime counts.
  struct Took {
    double least = 0, quiet = 0;
  };
  Took seconds_for(size_t bytes) {
    const auto begin = std::chrono::steady_clock::now();
    const QuietTime time;
    std::thread sender([&] {
      const std::vector<char> data(bytes);
      for (size_t at = 0; at < bytes;)
        at += static_cast<size_t>(write(to_first_.get(), data.data() + at, bytes - at));
    });
    std::vector<char> buffer(bytes);
    for (size_t at = 0; at < bytes;)
      at += static_cast<size_t>(read(from_second_.get(), buffer.data(), bytes - at));
    sender.join();
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
            time.ms() * 1e-3};
  }

  std::unique_ptr<RunSwitch> switch_;
  std::unique_ptr<OwnLink> first_, second_;
  UniqueFd listener_, to_first_, from_second_;
};

TEST_F(OwnLinkTest, IsAsSlowAsItsLimit) {
  EXPECT_EQ(second_->address(), "10.213.1.2");
  EXPECT_LT(seconds_for(300'000).quiet, 0.1);
  second_->limit_mb_per_s(1);
  const Took limited = seconds_for(300'000);
  EXPECT_GT(limited.least, 0.2);  // a burst of 16 kB and what the queue holds goes ahead
  EXPECT_LT(limited.quiet, 1);
  second_->limit_mb_per_s(0);
  EXPECT_LT(seconds_for(300'000).quiet, 0.1);
}

TEST_F(OwnLinkTest, LosesWhatIsSentAndReceivesStill) {
  EXPECT_TRUE(arrives(from_second_, to_first_, 2000));
  second_->lose_all();
  EXPECT_FALSE(arrives(from_second_, to_first_, 100));
  EXPECT_TRUE(arrives(to_first_, from_second_, 2000));
}

TEST_F(OwnLinkTest, OfOneSideDoesNotReachTheOther) {
  second_->change_side();
  EXPECT_FALSE(arrives(from_second_, to_first_, 100));
  EXPECT_FALSE(arrives(to_first_, from_second_, 100));
  first_->change_side();
  EXPECT_TRUE(readable(from_second_, 5000)) << "sent again once both are on one side";
}

TEST(OwnLink, SaysWhatIsNotThere) {
  try {
    OwnLink::join("/proc/self/fd/999", 0);
    FAIL() << "joined nothing";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "opening the network namespace /proc/self/fd/999: No such file or directory");
  }
}

}  // namespace
}  // namespace lockstep
