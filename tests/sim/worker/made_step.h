#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/worker/diagnose.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {

// A step of several ranks made by hand, from their gradients to the judge's result: what workers
// would have measured of it. No LibTorch, no processes.
namespace made_step {

using Values = std::vector<double>;
using Ranks = std::vector<Values>;

// What a run has of all ranks' own gradients, and what of them comes out on each.
struct Step {
  int64_t world_size = 3;
  std::vector<std::pair<size_t, size_t>> buckets;  // of elements: begin, end
  Ranks own;
  Values before;   // the last step's average
  Ranks averaged;  // on each rank; defects change this
  bool in_float = false;

  double rounded(double value) const { return in_float ? static_cast<float>(value) : value; }
  double mean(size_t i, const std::function<double(size_t rank)>& weight) const {
    double sum = 0;
    for (size_t rank = own.size(); rank-- > 0;) sum = rounded(sum + weight(rank) * own[rank][i]);
    return rounded(sum / static_cast<double>(own.size()));
  }
  double mean(size_t i) const {
    return mean(i, [](size_t) { return 1.0; });
  }
  void weigh(const std::function<double(size_t rank)>& weight) {
    for (Values& values : averaged)
      for (size_t i = 0; i < values.size(); ++i) values[i] = mean(i, weight);
  }
  void all(const std::function<double(size_t rank, size_t i)>& value) {
    for (size_t rank = 0; rank < averaged.size(); ++rank)
      for (size_t i = 0; i < averaged[rank].size(); ++i) averaged[rank][i] = value(rank, i);
  }
};

inline double norm(const Values& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

// Four gradients of 35, 7, 24 and 24 elements in buckets 0, 0, 1 and 2; a weight and its state.
class World {
 public:
  World(int64_t world_size, bool in_float, uint64_t seed) {
    step_.world_size = world_size;
    step_.in_float = in_float;
    step_.buckets = {{0, 42}, {42, 66}, {66, 90}};
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    const auto draw = [&] {
      return in_float ? static_cast<float>(normal(random)) : normal(random);
    };
    for (int64_t rank = 0; rank < world_size; ++rank) {
      step_.own.emplace_back();
      const double longer = 1 + 0.3 * static_cast<double>(rank);
      for (size_t i = 0; i < 90; ++i) step_.own.back().push_back(step_.rounded(longer * draw()));
    }
    for (size_t i = 0; i < 90; ++i) step_.before.push_back(draw());
    for (size_t i = 0; i < 90; ++i) golden_.push_back(golden(i));
    step_.averaged.assign(static_cast<size_t>(world_size), {});
    for (Values& values : step_.averaged)
      for (size_t i = 0; i < 90; ++i) values.push_back(in_float ? golden_[i] : step_.mean(i));
  }

  Step& step() { return step_; }

  RunResult judge() {
    const Lane lane = step_.in_float ? Lane::replay : Lane::float64;
    Outcome outcome(step_.world_size, 3, {Lane::replica, lane});
    for (size_t rank = 0; rank < step_.own.size(); ++rank) {
      if (step_.averaged[rank] != step_.averaged[0]) outcome.part(rank, 0, 2);
      note(rank, lane, &outcome);
    }
    return outcome.judge();
  }

 private:
  // One device: another order of addition than the ranks', in double.
  double golden(size_t i) const {
    if (step_.in_float) return step_.mean(i);
    double sum = 0;
    for (const Values& own : step_.own) sum += own[i];
    return sum * (1 / static_cast<double>(step_.own.size()));
  }

  StateLayout layout() const {
    const int64_t width = step_.in_float ? 4 : 8;
    const std::string dtype = step_.in_float ? "float32" : "float64";
    StateLayout layout;
    int64_t offset = 0;
    const auto add = [&](StateKind kind, const char* name, int64_t parameter, int64_t numel) {
      layout.entries.push_back({kind, name, parameter, dtype, numel, numel * width, offset});
      offset += numel * width;
    };
    add(StateKind::gradient, "a", 0, 35);
    add(StateKind::gradient, "b", 1, 7);
    add(StateKind::gradient, "c", 2, 24);
    add(StateKind::gradient, "d", 3, 24);
    add(StateKind::parameter, "a", 0, 35);
    add(StateKind::optimizer_state, "a.exp_avg_sq", 0, 35);
    layout.presence_offset = offset;
    layout.bytes = offset + 64;
    return layout;
  }

  // Gradients, and what follows from them with an optimizer that squares: the worst is at the end.
  std::vector<std::byte> state_of(const StateLayout& layout, const Values& gradients) const {
    Values all = gradients;
    for (size_t i = 0; i < 35; ++i) all.push_back(0.5 - 0.1 * gradients[i]);
    for (size_t i = 0; i < 35; ++i) all.push_back(gradients[i] * gradients[i] * 1e3);
    std::vector<std::byte> state(static_cast<size_t>(layout.bytes), std::byte{1});
    for (size_t i = 0; i < all.size(); ++i) {
      if (step_.in_float) {
        const auto value = static_cast<float>(all[i]);
        std::memcpy(state.data() + i * 4, &value, 4);
      } else {
        std::memcpy(state.data() + i * 8, &all[i], 8);
      }
    }
    return state;
  }

  void note(size_t rank, Lane lane, Outcome* outcome) const {
    const StateLayout layout = this->layout();
    const auto run = state_of(layout, step_.averaged[rank]);
    const auto golden = state_of(layout, golden_);
    const auto before = state_of(layout, step_.before);
    const auto local = state_of(layout, step_.own[rank]);
    std::vector<std::byte> shards;
    for (const Values& own : step_.own) {
      const auto shard = state_of(layout, own);
      shards.insert(shards.end(), shard.begin(), shard.end());
    }
    MismatchContext c;
    c.lane = lane;
    c.step = 2;
    c.rank = static_cast<int64_t>(rank);
    c.world_size = step_.world_size;
    c.layout = &layout;
    c.run = run.data();
    c.golden = golden.data();
    c.before = before.data();
    c.local = local.data();
    c.bucket_of = [](int64_t parameter) { return std::max<int64_t>(0, parameter - 1); };
    std::optional<BitDifference> difference;
    if (step_.in_float) {
      c.shards = shards.data();
      c.shard_bytes = layout.bytes;
      difference = first_bit_difference(layout, run.data(), golden.data());
    } else {
      const Distance distance = worst_distance(layout, run.data(), golden.data());
      if (distance.first_beyond >= 0)
        difference = farthest_difference(layout, distance.first_beyond, run.data(), golden.data());
      c.element_bounds = element_bounds(layout, golden.data());
      outcome->change(rank, EventKind::distance, static_cast<int32_t>(lane), [&](Event& e) {
        if (e.step >= 2) e.value = std::bit_cast<uint64_t>(distance.worst);
      });
    }
    if (difference) outcome->mismatch(rank, lane, diagnose(c, *difference));
  }

  Step step_;
  Values golden_;
};

}  // namespace made_step
}  // namespace lockstep
