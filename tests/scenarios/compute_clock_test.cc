#include "scenarios/compute_clock.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>

#include "scenarios/base/clock.h"

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;

// Time that passes only in sleeps, and where a test says so.
struct FakeTime {
  int64_t now = 1'000 * kMs;
  int64_t late = 0;               // by which every sleep ends
  int64_t stop_at = 0, stop = 0;  // then, for so long, the rank is stopped

  TimeSource source() {
    return {[this] { return now; },
            [this](int64_t until) {
              const bool stopped = stop_at > now && stop_at <= until;
              now = std::max({now, until + late, stopped ? stop_at + stop : 0});
            }};
  }
};

class ComputeClockTest : public testing::Test {
 protected:
  double forward_ms(int64_t samples) {
    const int64_t begin = time_.now;
    clock_.begin_forward(samples);
    clock_.wait_forward(0);
    clock_.wait_forward(1);
    return ms_since(begin);
  }
  // After `own_ms` of the rank's own work before each layer.
  double backward_ms(double own_ms = 0) {
    const int64_t begin = time_.now;
    clock_.begin_backward();
    for (const size_t layer : {1, 0}) {
      time_.now += static_cast<int64_t>(own_ms * kMs);
      clock_.wait_backward(layer);
    }
    return ms_since(begin);
  }
  double ms_since(int64_t begin) const { return static_cast<double>(time_.now - begin) / kMs; }

  FakeTime time_;
  ComputeClock clock_{{{"a", 4, 8, 40}, {"b", 6, 32, 32}}, 4, time_.source()};
};

TEST_F(ComputeClockTest, LayersTakeTheirTime) {
  EXPECT_EQ(forward_ms(4), 10);
  EXPECT_EQ(backward_ms(), 40);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
}

TEST_F(ComputeClockTest, TimeGoesWithSamplesAndFactor) {
  EXPECT_EQ(forward_ms(8), 20);
  EXPECT_EQ(backward_ms(), 80);
  clock_.set_factor(3);
  EXPECT_EQ(forward_ms(2), 15);
  clock_.set_factor(1);
  EXPECT_EQ(backward_ms(), 20);
}

TEST_F(ComputeClockTest, APauseComesBeforeItsLayer) {
  forward_ms(4);
  clock_.set_pause_before_layer("a.weight", 30);
  EXPECT_EQ(backward_ms(), 70);
  EXPECT_EQ(forward_ms(4), 10);
  const int64_t begin = time_.now;
  clock_.begin_backward();
  clock_.wait_backward(1);
  EXPECT_EQ(ms_since(begin), 32) << "b comes before a";
  clock_.set_pause_before_layer("a", 0);
  EXPECT_EQ(backward_ms(), 40);
  EXPECT_DEATH(clock_.set_pause_before_layer("c", 1), "no layer c");
}

// A rank is late by one sleep, not by the sum of them.
TEST_F(ComputeClockTest, WhatIsShorterThanAHaltDoesNotAddUp) {
  forward_ms(4);
  EXPECT_EQ(backward_ms(4), 40) << "the rank's own work is hidden behind its layers";
  time_.late = kMs / 2;
  EXPECT_EQ(backward_ms(4), 40.5);
  EXPECT_EQ(forward_ms(4), 10.5);
}

TEST_F(ComputeClockTest, ARankThatIsLateByAHaltStaysLate) {
  forward_ms(4);
  EXPECT_EQ(backward_ms(20), 80);
}

TEST_F(ComputeClockTest, AStopWithinALayerIsNoticed) {
  forward_ms(4);
  time_.stop_at = time_.now + 15 * kMs;
  time_.stop = 9 * kMs;
  EXPECT_EQ(backward_ms(), 40);
  time_.stop_at = time_.now + 15 * kMs;
  time_.stop = 300 * kMs;
  EXPECT_EQ(backward_ms(), 339) << "less what was left of a slice";
}

TEST(MonotonicTime, SleepsUntilThen) {
  const TimeSource time = monotonic_time();
  const int64_t target = time.now_ns() + 5 * kMs;
  time.sleep_until_ns(target);
  EXPECT_GE(now_ns(), target);
}

}  // namespace
}  // namespace lockstep
