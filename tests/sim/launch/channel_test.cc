#include "sim/launch/channel.h"

#include <fcntl.h>
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

}  // namespace
}  // namespace lockstep
