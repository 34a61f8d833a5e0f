#include <gtest/gtest.h>

#include <thread>

#include "scenarios/workloads/fake_memory.h"

namespace lockstep {
namespace {

TEST(LateQueues, AQueueIsInOrderAndKnowsNothingOfOthersBeforeItWaits) {
  LateQueues queues;
  const auto first = queues.put(1);
  EXPECT_TRUE(queues.is_before(first, 1));
  EXPECT_FALSE(queues.is_before(first, 2));
  const auto event = queues.record(1);
  const auto later = queues.put(1);
  queues.wait(2, event);
  EXPECT_TRUE(queues.is_before(first, 2));
  EXPECT_FALSE(queues.is_before(later, 2));
  // Through a third one.
  queues.wait(3, queues.record(2));
  EXPECT_TRUE(queues.is_before(first, 3));
  EXPECT_TRUE(queues.is_before({}, 3));
}

TEST(LateQueues, WhatTheHostHasWaitedForComesBeforeWhatItPutsAnywhere) {
  LateQueues queues;
  const auto mark = queues.put(4);
  const auto event = queues.record(4);
  EXPECT_FALSE(queues.is_before(mark, 5));
  queues.wait_on_host(event);
  EXPECT_TRUE(queues.is_before(mark, 5));
  bool other_thread_knows = true;
  std::thread([&] { other_thread_knows = queues.is_before(mark, 6); }).join();
  EXPECT_FALSE(other_thread_knows);
  queues.put(5);  // carries it along
  std::thread([&] { other_thread_knows = queues.is_before(mark, 5); }).join();
  EXPECT_TRUE(other_thread_knows);
}

TEST(LateQueues, WhatIsToHappenOnTheHostHappensWhenSomebodyWaits) {
  LateQueues queues;
  int done = 0;
  const auto first = queues.put(7);
  queues.on_host_after(first, [&] { done += 1; });
  const auto event = queues.record(7);
  queues.on_host_after(queues.put(7), [&] { done += 10; });
  EXPECT_EQ(done, 0);
  queues.wait_on_host(event);
  EXPECT_EQ(done, 1);
  queues.wait_on_host(queues.record(7));
  EXPECT_EQ(done, 11);
}

}  // namespace

}  // namespace lockstep
