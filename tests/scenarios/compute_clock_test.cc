#include "scenarios/compute_clock.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "scenarios/base/clock.h"

namespace lockstep {
namespace {

LayerTimes times() { return {{"a", 4, 8, 20}, {"b", 6, 12, 12}}; }

double ms_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e6; }

// Other work on this machine may make a sleep late, but not each of them, and never early.
void expect_takes(double expected_ms, const std::function<double()>& measured_ms) {
  double least = measured_ms();
  for (int i = 0; i < 4 && least > expected_ms + 2; ++i) least = std::min(least, measured_ms());
  EXPECT_GE(least, expected_ms);
  EXPECT_LT(least, expected_ms + 2);
}

double forward_ms(ComputeClock& clock, int64_t samples) {
  const int64_t begin = now_ns();
  clock.begin_forward(samples);
  clock.wait_forward(0);
  clock.wait_forward(1);
  return ms_since(begin);
}

double backward_ms(ComputeClock& clock) {
  const int64_t begin = now_ns();
  clock.begin_backward();
  clock.wait_backward(1);
  clock.wait_backward(0);
  return ms_since(begin);
}

TEST(ComputeClock, LayersTakeTheirTime) {
  ComputeClock clock(times(), 4);
  expect_takes(10, [&] { return forward_ms(clock, 4); });
  expect_takes(20, [&] { return backward_ms(clock); });
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
}

TEST(ComputeClock, TimeGoesWithSamplesAndFactor) {
  ComputeClock clock(times(), 4);
  expect_takes(20, [&] { return forward_ms(clock, 8); });
  expect_takes(40, [&] { return backward_ms(clock); });
  clock.set_factor(3);
  expect_takes(15, [&] { return forward_ms(clock, 2); });
  clock.set_factor(1);
  expect_takes(10, [&] { return backward_ms(clock); });
}

TEST(ComputeClock, APauseComesBeforeItsLayer) {
  ComputeClock clock(times(), 4);
  clock.begin_forward(4);
  clock.set_pause_before_layer("a.weight", 30);
  expect_takes(50, [&] { return backward_ms(clock); });
  expect_takes(12, [&] {
    const int64_t begin = now_ns();
    clock.begin_backward();
    clock.wait_backward(1);
    return ms_since(begin);
  });
  expect_takes(10, [&] { return forward_ms(clock, 4); });
  clock.set_pause_before_layer("a", 0);
  expect_takes(20, [&] { return backward_ms(clock); });
  EXPECT_DEATH(clock.set_pause_before_layer("c", 1), "no layer c");
}

// After `ms` of the rank's own work before each layer.
double with_own_work_ms(ComputeClock& clock, int64_t ms) {
  const int64_t begin = now_ns();
  clock.begin_backward();
  for (const size_t layer : {1, 0}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    clock.wait_backward(layer);
  }
  return ms_since(begin);
}

TEST(ComputeClock, TheRanksOwnWorkIsHiddenBehindItsLayers) {
  ComputeClock clock({{"a", 0, 8, 40}, {"b", 0, 32, 32}}, 1);
  clock.begin_forward(1);
  expect_takes(40, [&] { return with_own_work_ms(clock, 4); });
}

TEST(ComputeClock, ARankThatWasStoppedIsLaterByThat) {
  ComputeClock clock({{"a", 0, 20, 60}, {"b", 0, 40, 40}}, 1);
  clock.begin_forward(1);
  expect_takes(100, [&] { return with_own_work_ms(clock, 20); });
}

}  // namespace
}  // namespace lockstep
