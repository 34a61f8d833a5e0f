#include "sim/worker/probe.h"

#include <algorithm>

#include "scenarios/base/hash.h"

namespace lockstep {

void RecordingProbe::parameter_ready(int64_t parameter) noexcept {
  recorder_.append(EventKind::parameter_ready, static_cast<int32_t>(parameter));
}

void RecordingProbe::bucket_ready(int64_t bucket) noexcept {
  recorder_.append(EventKind::bucket_ready, static_cast<int32_t>(bucket));
  if (device_clock_ != nullptr) device_clock_->mark(bucket);
}

void RecordingProbe::note_device_times() {
  if (device_clock_ == nullptr) return;
  for (const DeviceClock::Reading& reading : device_clock_->take())
    recorder_.append(EventKind::device_ready, static_cast<int32_t>(reading.what),
                     static_cast<uint64_t>(reading.time_ns),
                     static_cast<uint32_t>(std::min<int64_t>(reading.uncertainty_ns, UINT32_MAX)));
}

void RecordingProbe::arrival(uint32_t sequence, Operation operation, int64_t bucket, int64_t bytes,
                             uint8_t dtype) noexcept {
  const uint64_t packed = pack_collective(static_cast<uint8_t>(operation), dtype, bytes);
  collective_hash_ = hash64(&packed, sizeof packed, collective_hash_);
  recorder_.append(EventKind::arrival, static_cast<int32_t>(bucket), packed, sequence);
}

void RecordingProbe::end(uint32_t sequence, int64_t bucket) noexcept {
  recorder_.append(EventKind::end, static_cast<int32_t>(bucket), 0, sequence);
}

void RecordingProbe::assigned(int64_t parameter, int64_t bucket, int64_t place) noexcept {
  if (buckets_.size() <= static_cast<size_t>(parameter)) buckets_.resize(parameter + 1, -1);
  buckets_[parameter] = bucket;
  recorder_.append(EventKind::assigned, static_cast<int32_t>(parameter),
                   (static_cast<uint64_t>(bucket) << 32) | static_cast<uint64_t>(place));
}

int64_t RecordingProbe::bucket_of(int64_t parameter) const {
  const auto index = static_cast<size_t>(parameter);
  return parameter >= 0 && index < buckets_.size() ? buckets_[index] : -1;
}

}  // namespace lockstep
