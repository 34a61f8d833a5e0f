#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sim/launch/event_loop.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

class HangUp : public testing::Test {
 protected:
  int calls_after(int fd, int reader) {
    loop_.watch_hang_up(fd, [this] { ++calls_; });
    loop_.wait(milliseconds(0));
    EXPECT_EQ(calls_, 0);
    ::close(reader);
    for (int i = 0; i < 3; ++i) loop_.wait(milliseconds(10));
    loop_.forget(fd);
    return calls_;
  }
  EventLoop loop_;
  int calls_ = 0;
};

TEST_F(HangUp, OfAPipe) {
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  const UniqueFd own(fds[1]);
  EXPECT_EQ(calls_after(own.get(), fds[0]), 1);
}

// What comes in from the other side, its end included, is no hang-up.
TEST_F(HangUp, OfASocket) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const UniqueFd own(fds[1]);
  ASSERT_EQ(::write(fds[0], "x", 1), 1);
  ::shutdown(fds[0], SHUT_WR);
  EXPECT_EQ(calls_after(own.get(), fds[0]), 1);
}

TEST_F(HangUp, NeverOfAFile) {
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(calls_after(file.get(), -1), 0);
}

}  // namespace

}  // namespace lockstep
