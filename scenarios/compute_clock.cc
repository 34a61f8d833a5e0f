#include "scenarios/compute_clock.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>

#include "scenarios/base/check.h"
#include "scenarios/base/clock.h"

namespace lockstep {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

// A signal that has a handler does not end it.
void sleep_until(int64_t target_ns) {
  const timespec target{target_ns / kNsPerSecond, target_ns % kNsPerSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &target, nullptr) == EINTR) {
  }
}

}  // namespace

TimeSource monotonic_time() { return {now_ns, sleep_until}; }

ComputeClock::ComputeClock(LayerTimes times, double planned_samples, TimeSource time)
    : times_(std::move(times)),
      time_(std::move(time)),
      planned_samples_(planned_samples),
      pauses_ms_(times_.size(), 0) {
  LOCKSTEP_CHECK(!times_.empty() && planned_samples > 0, "a clock without layers or samples");
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // else sleeps end 50 us late, to save energy
}

void ComputeClock::set_pause_before_layer(const std::string& layer, double ms) {
  const std::string of_parameter = layer.substr(0, layer.rfind('.'));
  for (size_t i = 0; i < times_.size(); ++i)
    if (times_[i].layer == layer || times_[i].layer == of_parameter) {
      pauses_ms_[i] = ms;
      return;
    }
  LOCKSTEP_CHECK(false, "no layer " + layer);
}

void ComputeClock::begin() {
  begin_ns_ = time_.now_ns();
  pass_scale_ = factor_ * share_;
  done_ms_ = 0;
}

void ComputeClock::begin_forward(int64_t samples) {
  share_ = static_cast<double>(samples) / planned_samples_;
  begin();
}

void ComputeClock::begin_backward() { begin(); }

void ComputeClock::wait_forward(size_t layer) {
  wait_for(times_.at(layer).forward_ms * pass_scale_);
}

void ComputeClock::wait_backward(size_t layer) {
  wait_for(times_.at(layer).backward_ms * pass_scale_ + pauses_ms_[layer]);
}

int64_t ComputeClock::due_ns() const { return begin_ns_ + std::llround(done_ms_ * kNsPerMs); }

void ComputeClock::note_halt(int64_t due_ns) {
  const int64_t late_ns = time_.now_ns() - due_ns;
  if (late_ns >= kHaltedMs * kNsPerMs) begin_ns_ += late_ns;
}

void ComputeClock::wait_for(double ms) {
  note_halt(due_ns());  // of the layer before
  done_ms_ += ms;
  for (int64_t now = time_.now_ns(); now < due_ns(); now = time_.now_ns()) {
    const int64_t slice_end_ns = std::min(now + kSliceMs * kNsPerMs, due_ns());
    time_.sleep_until_ns(slice_end_ns);
    note_halt(slice_end_ns);
  }
}

}  // namespace lockstep
