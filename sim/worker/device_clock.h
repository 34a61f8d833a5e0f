#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

// When a device came past the places in its stream that a rank has marked, on the host's clock. A
// call that puts work into a stream returns long before the work is done, so the host's times say
// nothing of a device's. Events are c10's with timing (LibTorch 2.4 and later), whichever device.
class DeviceClock {
 public:
  // Null for the cpu and where LibTorch's events have no times.
  static std::unique_ptr<DeviceClock> of(c10::Device device);

  virtual ~DeviceClock() = default;
  // Waits until the stream that is current on this thread is empty, and ties its time to the
  // host's: an event between two looks at the clock. Once a step; forgets the marks.
  virtual void anchor() = 0;
  // Marks where the stream that is current on this thread is now. Any thread.
  virtual void mark(int64_t what) = 0;

  struct Reading {
    int64_t what = 0;
    int64_t time_ns = 0;         // CLOCK_MONOTONIC
    int64_t uncertainty_ns = 0;  // of the anchor, and of what an event resolves
  };
  // Of all marks since the anchor, in their order. Waits until the device has come past them.
  virtual std::vector<Reading> take() = 0;
};

}  // namespace lockstep
