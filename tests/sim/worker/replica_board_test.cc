#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "sim/worker/replica_board.h"

namespace lockstep {
namespace {

Deadline soon() { return deadline_after(std::chrono::seconds(10)); }

TEST(ReplicaBoard, LastToArriveSeesAllStatesOfEveryStep) {
  constexpr int64_t kRanks = 3, kSteps = 50, kBytes = 100;
  auto board = ReplicaBoard::in_memory(kRanks, kBytes);
  std::atomic<int64_t> seen = 0;
  const auto run = [&](int64_t rank) {
    for (int64_t step = 0; step < kSteps; ++step) {
      std::byte* place = board->begin(rank, step, soon());
      ASSERT_NE(place, nullptr);
      std::memset(place, static_cast<int>(step + 1), kBytes);
      if (!board->arrive(step, kRanks)) continue;
      for (int64_t other = 0; other < kRanks; ++other)
        for (int64_t i = 0; i < kBytes; ++i)
          EXPECT_EQ(board->state(other, step)[i], static_cast<std::byte>(step + 1));
      ++seen;
      board->release(step);
    }
  };
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank) ranks.emplace_back(run, rank);
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(seen, kSteps);
}

TEST(ReplicaBoard, RankThatRunsAwayWaitsForTheSlot) {
  auto board = ReplicaBoard::in_memory(2, 8);
  for (int64_t step = 0; step < ReplicaBoard::kSlots; ++step) {
    ASSERT_NE(board->begin(0, step, soon()), nullptr);
    EXPECT_FALSE(board->arrive(step, 2));
  }
  EXPECT_EQ(board->begin(0, ReplicaBoard::kSlots, deadline_after(std::chrono::milliseconds(20))),
            nullptr);
}

TEST(ReplicaBoard, FileIsMadeByRankZeroAndSeenByOthers) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("board-" + std::to_string(getpid()));
  EXPECT_EQ(ReplicaBoard::in_file(path, 1, 2, 8, deadline_after(std::chrono::milliseconds(10))),
            nullptr);
  auto first = ReplicaBoard::in_file(path, 0, 2, 8, soon());
  auto second = ReplicaBoard::in_file(path, 1, 2, 8, soon());
  ASSERT_NE(second, nullptr);
  std::memcpy(first->begin(0, 0, soon()), "abcdefgh", 8);
  EXPECT_FALSE(first->arrive(0, 2));
  second->begin(1, 0, soon());
  EXPECT_TRUE(second->arrive(0, 2));
  EXPECT_EQ(std::memcmp(second->state(0, 0), "abcdefgh", 8), 0);
  unlink(path.c_str());
  EXPECT_THROW(ReplicaBoard::in_file("/nowhere/at/all", 0, 2, 8, soon()), std::system_error);
}

}  // namespace

}  // namespace lockstep
