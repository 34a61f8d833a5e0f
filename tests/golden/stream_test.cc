#include "golden/stream.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kPatience{20'000};
Deadline soon() { return deadline_after(std::chrono::milliseconds(30)); }
Deadline patient() { return deadline_after(kPatience); }

// Slot contents that tell item and place, so that a torn or reused slot shows.
uint64_t word_of(int64_t item, size_t place) {
  return static_cast<uint64_t>(item) * 1'000'003 + place;
}

void write_item(StateStream& stream, int64_t item) {
  std::byte* slot = stream.begin_write(patient());
  ASSERT_NE(slot, nullptr);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(slot) % 64, 0u);
  auto* words = reinterpret_cast<uint64_t*>(slot);
  for (size_t i = 0; i < static_cast<size_t>(stream.shape().slot_bytes) / 8; ++i)
    words[i] = word_of(item, i);
  stream.end_write();
}

// Number of wrong words, or -1 if the item did not come.
int64_t read_item(StateStream& stream, int64_t consumer, int64_t item) {
  const std::byte* slot = stream.begin_read(consumer, item, patient());
  if (slot == nullptr) return -1;
  const auto* words = reinterpret_cast<const uint64_t*>(slot);
  int64_t wrong = 0;
  for (size_t i = 0; i < static_cast<size_t>(stream.shape().slot_bytes) / 8; ++i)
    wrong += words[i] != word_of(item, i);
  stream.end_read(consumer);
  return wrong;
}

std::string path_for_test() {
  return ::testing::TempDir() + "stream_" + std::to_string(getpid()) + "_" +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

TEST(StateStream, CarriesItemsToSeveralThreads) {
  constexpr int64_t kItems = 2000;
  auto stream = StateStream::in_memory({.slot_bytes = 520, .slots = 3, .consumers = 3});
  std::vector<std::thread> consumers;
  std::vector<int64_t> wrong(3, 0);
  for (int64_t c = 0; c < 3; ++c)
    consumers.emplace_back([&, c] {
      for (int64_t item = 0; item < kItems; ++item)
        wrong[static_cast<size_t>(c)] += std::abs(read_item(*stream, c, item));
    });
  for (int64_t item = 0; item < kItems; ++item) write_item(*stream, item);
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(wrong, std::vector<int64_t>(3, 0));
}

TEST(StateStream, TheProducerWaitsForTheSlowestConsumer) {
  auto stream = StateStream::in_memory({.slot_bytes = 64, .slots = 2, .consumers = 2});
  write_item(*stream, 0);
  write_item(*stream, 1);
  EXPECT_EQ(stream->begin_write(soon()), nullptr);
  EXPECT_EQ(read_item(*stream, 0, 0), 0);
  EXPECT_EQ(stream->begin_write(soon()), nullptr);
  EXPECT_EQ(read_item(*stream, 1, 0), 0);
  write_item(*stream, 2);
  EXPECT_EQ(read_item(*stream, 1, 1), 0);
  EXPECT_EQ(read_item(*stream, 1, 2), 0);
}

// As a rank does that finds a mismatch in the item it reads.
TEST(StateStream, AConsumerMayLeaveInTheMiddleOfAnItem) {
  auto stream = StateStream::in_memory({.slot_bytes = 64, .slots = 1, .consumers = 2});
  write_item(*stream, 0);
  EXPECT_EQ(read_item(*stream, 0, 0), 0);
  ASSERT_NE(stream->begin_read(1, 0, soon()), nullptr);
  stream->leave(1);
  stream->end_read(1);
  ASSERT_NE(stream->begin_write(soon()), nullptr);
}

TEST(StateStream, AConsumerThatLeftIsNotWaitedFor) {
  auto stream = StateStream::in_memory({.slot_bytes = 64, .slots = 1, .consumers = 2});
  write_item(*stream, 0);
  EXPECT_EQ(read_item(*stream, 0, 0), 0);
  std::thread leaver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stream->leave(1);
  });
  write_item(*stream, 1);  // blocks until consumer 1 has left
  EXPECT_FALSE(stream->abandoned());
  leaver.join();
  stream->leave(0);
  EXPECT_TRUE(stream->abandoned());
}

TEST(StateStream, ReadersSeeDeadlinesAndTheEnd) {
  auto stream = StateStream::in_memory({.slot_bytes = 64});
  EXPECT_EQ(stream->begin_read(0, 0, soon()), nullptr);
  write_item(*stream, 0);
  stream->finish();
  EXPECT_EQ(read_item(*stream, 0, 0), 0);
  const auto before = Clock::now();
  EXPECT_EQ(stream->begin_read(0, 1, patient()), nullptr);
  EXPECT_LT(Clock::now() - before, kPatience / 2);
}

TEST(StateStream, FinishWakesAReaderThatSleeps) {
  auto stream = StateStream::in_memory({.slot_bytes = 64});
  std::thread finisher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stream->finish();
  });
  EXPECT_EQ(stream->begin_read(0, 0, kNoDeadline), nullptr);
  finisher.join();
}

TEST(StateStream, WorksBetweenProcesses) {
  constexpr int64_t kItems = 500;
  const std::string path = path_for_test();
  std::vector<pid_t> children;
  for (int64_t c = 0; c < 2; ++c) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto stream = StateStream::open(path, patient());
      int64_t wrong = stream ? 0 : 1;
      for (int64_t item = 0; item < kItems && stream; ++item)
        wrong += std::abs(read_item(*stream, c, item));
      _exit(wrong == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  auto stream = StateStream::create(path, {.slot_bytes = 4096, .slots = 2, .consumers = 2});
  for (int64_t item = 0; item < kItems; ++item) write_item(*stream, item);
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  std::filesystem::remove(path);
}

TEST(StateStream, TheFileIsPrivateAndWhole) {
  const std::string path = path_for_test();
  auto stream = StateStream::create(path, {.slot_bytes = 1000, .slots = 2, .consumers = 1});
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_GE(status.st_blocks * 512, 2000);  // allocated, not sparse
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  auto other = StateStream::open(path, soon());
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->shape().slot_bytes, 1000);
  std::filesystem::remove(path);
}

TEST(StateStream, NoFileIsADeadlineOrAnError) {
  EXPECT_EQ(StateStream::open(path_for_test(), soon()), nullptr);
  EXPECT_THROW(StateStream::create("/nowhere/at/all", {.slot_bytes = 64}), std::system_error);
}

}  // namespace
}  // namespace lockstep
