#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

// Random numbers of a forward (dropout, noise, layers that are skipped at random). Every sample has
// a generator of its own, seeded by the scenario's seed, the step and the sample's place in the
// data set: it draws the same wherever it goes forward, whichever rank, micro-batch, process or
// dtype that is. So golden runs repeat the draws of each rank, and a whole batch gets those of all
// its shards. One thread.
class SampleDraws {
 public:
  explicit SampleDraws(uint64_t seed) : seed_(seed) {}

  // A forward of these samples begins, row by row.
  void begin(int64_t step, std::vector<int64_t> samples);
  // The same for `count` rows, from `first` on, of the forward that `whole` has begun.
  void begin_part(const SampleDraws& whole, int64_t first, int64_t count);

  // [samples, sample_shape...] in float32, uniform in [0, 1), multiples of 2^-24. Each call of a
  // forward draws anew.
  at::Tensor uniform(at::IntArrayRef sample_shape);
  int64_t samples() const { return static_cast<int64_t>(samples_.size()); }

  // How far the forward under way has come, where forwards take turns in one model.
  struct Place {
    int64_t step = 0;
    std::vector<int64_t> samples{};
    uint64_t calls = 0;
  };
  Place place() const { return {step_, samples_, calls_}; }
  void go_on_at(Place place);

  // Has a forward drawn from LibTorch's default generator? Nobody can repeat that (workload.h).
  bool any_undeclared() const { return any_undeclared_; }
  void note_undeclared() { any_undeclared_ = true; }

 private:
  const uint64_t seed_;
  int64_t step_ = 0;
  std::vector<int64_t> samples_;
  uint64_t calls_ = 0;  // in this forward
  bool any_undeclared_ = false;
};

// What a layer that draws derives from, beside torch::nn::Module: models made of modules find it.
class RandomLayer {
 public:
  virtual ~RandomLayer() = default;
  // Must outlive the last forward.
  void draw_from(SampleDraws* draws) { draws_ = draws; }

 protected:
  // Throws std::runtime_error where nobody has called draw_from().
  SampleDraws& draws() const;

 private:
  SampleDraws* draws_ = nullptr;
};

}  // namespace lockstep
