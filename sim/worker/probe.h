#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "reducer/probe.h"
#include "sim/record/recorder.h"

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

// Writes what reducer and communicator report into the flight recorder, and keeps a running hash of
// the collectives that this rank entered, for check collective_log. Thread-safe as Recorder is;
// arrivals come from one thread.
class RecordingProbe : public Probe {
 public:
  explicit RecordingProbe(Recorder& recorder) : recorder_(recorder) {}

  void parameter_ready(int64_t parameter) noexcept override;
  void bucket_ready(int64_t bucket) noexcept override;
  void arrival(uint32_t sequence, Operation operation, int64_t bucket, int64_t bytes,
               uint8_t dtype) noexcept override;
  void end(uint32_t sequence, int64_t bucket) noexcept override;
  void assigned(int64_t parameter, int64_t bucket, int64_t place) noexcept override;

  // Marks there, too, where a device has the gradients of a bucket; null: the host's times hold.
  void use(DeviceClock* clock) { device_clock_ = clock; }
  // Records what the device clock has seen since its anchor.
  void note_device_times();

  uint64_t collective_hash() const { return collective_hash_; }
  // Which bucket parameter `parameter` was last assigned to; -1 if none.
  int64_t bucket_of(int64_t parameter) const;

 private:
  Recorder& recorder_;
  DeviceClock* device_clock_ = nullptr;
  uint64_t collective_hash_ = 0;
  std::vector<int64_t> buckets_;
};

}  // namespace lockstep
