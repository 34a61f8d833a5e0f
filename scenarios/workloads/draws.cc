#include "scenarios/workloads/draws.h"

#include <ATen/ops/empty.h>

#include <stdexcept>
#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

constexpr int kUnusedBits = 40;  // of 64: a float32 holds 24

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t next(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void SampleDraws::begin(int64_t step, std::vector<int64_t> samples) {
  step_ = step;
  samples_ = std::move(samples);
  calls_ = 0;
}

void SampleDraws::begin_part(const SampleDraws& whole, int64_t first, int64_t count) {
  LOCKSTEP_CHECK(first >= 0 && first + count <= whole.samples(), "no such rows");
  const auto begin = whole.samples_.begin() + first;
  this->begin(whole.step_, {begin, begin + count});
}

void SampleDraws::go_on_at(Place place) {
  begin(place.step, std::move(place.samples));
  calls_ = place.calls;
}

at::Tensor SampleDraws::uniform(at::IntArrayRef sample_shape) {
  std::vector<int64_t> shape = sample_shape.vec();
  shape.insert(shape.begin(), samples());
  at::Tensor values = at::empty(shape, at::kFloat);
  const uint64_t step = substream_seed(seed_, "draws", static_cast<uint64_t>(step_));
  const uint64_t call = substream_seed(step, "call", calls_++);
  auto* out = static_cast<float*>(values.data_ptr());
  const int64_t each = samples_.empty() ? 0 : values.numel() / samples();
  for (const int64_t sample : samples_) {
    uint64_t state = substream_seed(call, "sample", static_cast<uint64_t>(sample));
    for (int64_t i = 0; i < each; ++i)
      *out++ = static_cast<float>(next(&state) >> kUnusedBits) * 0x1p-24F;
  }
  return values;
}

SampleDraws& RandomLayer::draws() const {
  if (draws_ == nullptr)
    throw std::runtime_error(
        "a layer draws random numbers and has no generators: its model hands on no draw_from()");
  return *draws_;
}

}  // namespace lockstep
