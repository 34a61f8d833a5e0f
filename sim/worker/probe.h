#pragma once

#include "reducer/probe.h"
#include "sim/record/recorder.h"
#include "sim/worker/device_clock.h"

namespace lockstep {

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
