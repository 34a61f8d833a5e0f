#include "sim/worker/probe.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "scenarios/base/clock.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

constexpr int64_t kEventResolutionNs = 1000;  // CUDA's own is half a microsecond
constexpr int kAnchors = 3;                   // the one with the closest looks is taken

template <class Event>
concept HasTimes = requires(const Event& event) {
  event.elapsedTime(event);
  event.synchronize();
};

// A template, so that what older events lack is not compiled.
template <class Event>
class EventClock : public DeviceClock {
 public:
  explicit EventClock(c10::Device device) : device_(device), anchor_(make()) {}

  void anchor() override {
    const std::lock_guard lock(mutex_);
    marks_.clear();
    wait_for_stream();
    uncertainty_ns_ = -1;
    for (int i = 0; i < kAnchors; ++i) {
      Event event = make();
      const int64_t before = now_ns();
      event.record(stream());
      event.synchronize();
      const int64_t after = now_ns();
      const int64_t uncertainty = (after - before + 1) / 2;
      if (uncertainty_ns_ >= 0 && uncertainty >= uncertainty_ns_) continue;
      anchor_ = std::move(event);
      anchor_ns_ = before + uncertainty;
      uncertainty_ns_ = uncertainty;
    }
  }

  void mark(int64_t what) override {
    const std::lock_guard lock(mutex_);
    if (uncertainty_ns_ < 0) return;  // outside of steps
    marks_.emplace_back(what, make());
    marks_.back().second.record(stream());
  }

  std::vector<Reading> take() override {
    const std::lock_guard lock(mutex_);
    std::vector<Reading> readings;
    for (auto& [what, event] : marks_) {
      event.synchronize();
      const double elapsed_ms = anchor_.elapsedTime(event);
      readings.push_back({what, anchor_ns_ + static_cast<int64_t>(elapsed_ms * 1e6),
                          uncertainty_ns_ + kEventResolutionNs});
    }
    marks_.clear();
    return readings;
  }

 private:
  Event make() const { return Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT); }
  c10::Stream stream() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  }
  void wait_for_stream() const {
    Event all = make();
    all.record(stream());
    all.synchronize();
  }

  const c10::Device device_;
  std::mutex mutex_;
  Event anchor_;
  int64_t anchor_ns_ = 0, uncertainty_ns_ = -1;
  std::vector<std::pair<int64_t, Event>> marks_;
};

template <class Event>
std::unique_ptr<DeviceClock> clock_of(c10::Device device) {
  if constexpr (HasTimes<Event>) {
    if (!device.is_cpu()) return std::make_unique<EventClock<Event>>(device);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<DeviceClock> DeviceClock::of(c10::Device device) {
  return clock_of<c10::Event>(device);
}

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
