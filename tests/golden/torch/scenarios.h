#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "golden/golden_run.h"
#include "scenarios/scenario.h"

namespace lockstep {

inline Part sgd(double lr, double momentum = 0) {
  Part part{"sgd", {}};
  part.options.set("lr", lr);
  part.options.set("momentum", momentum);
  part.options.set("dampening", 0.0);
  part.options.set("weight_decay", 0.0);
  part.options.set("nesterov", false);
  return part;
}

inline Part adam(bool amsgrad = false) {
  Part part{"adam", {}};
  part.options.set("lr", 0.01);
  part.options.set("beta1", 0.9);
  part.options.set("beta2", 0.999);
  part.options.set("eps", 1e-8);
  part.options.set("weight_decay", 0.0);
  part.options.set("amsgrad", amsgrad);
  return part;
}

inline Part mse(const std::string& reduction = "mean", double scale = 1,
                bool times_world_size = false) {
  Part part{"mse", {}};
  part.options.set("reduction", reduction);
  part.options.set("scale", scale);
  part.options.set("times_world_size", times_world_size);
  return part;
}

inline Part randn(int64_t samples, int64_t features, int64_t targets) {
  Part part{"randn", {}};
  part.options.set("samples", samples);
  part.options.set("features", features);
  part.options.set("targets", targets);
  return part;
}

inline Part dyadic(int64_t samples, int64_t features, int64_t targets) {
  Part part = randn(samples, features, targets);
  part.kind = "dyadic";
  part.options.set("low", int64_t{-3});
  part.options.set("high", int64_t{3});
  part.options.set("denominator", int64_t{4096});
  return part;
}

inline Part linear(int64_t in, int64_t out) {
  Part part{"linear", {}};
  part.options.set("in_features", in);
  part.options.set("out_features", out);
  part.options.set("bias", true);
  return part;
}

inline Part mlp(std::vector<int64_t> widths, const std::string& activation = "relu") {
  Part part{"mlp", {}};
  part.options.set("in_features", widths.front());
  part.options.set("out_features", widths.back());
  part.options.set("hidden", std::vector<int64_t>(widths.begin() + 1, widths.end() - 1));
  part.options.set("activation", activation);
  part.options.set("bias", true);
  return part;
}

inline Scenario scenario_of(int64_t world_size, int64_t steps, Part model, Part data) {
  Scenario scenario;
  scenario.seed = 123;
  scenario.world_size = world_size;
  scenario.steps = steps;
  scenario.batch_size = data.options.integer("samples");
  scenario.model = std::move(model);
  scenario.data = std::move(data);
  scenario.split.kind = "contiguous";
  scenario.loss = mse();
  scenario.optimizer = sgd(0.1, 0.9);
  return scenario;
}

inline Scenario mlp_scenario(int64_t world_size, int64_t steps) {
  return scenario_of(world_size, steps, mlp({16, 24, 20, 12, 8}), randn(168, 16, 8));
}

// The published run: one file, one generator, one step on 20 samples.
inline Scenario linear_manual_split() {
  Scenario scenario = scenario_of(4, 1, linear(10, 10), randn(20, 10, 10));
  scenario.rng = "global_data_first";
  scenario.split.kind = "manual";
  scenario.optimizer = sgd(1.0);
  return scenario;
}

// All items of a golden run, as a consumer sees them.
inline std::vector<std::vector<std::byte>> items_of(const Scenario& scenario, GoldenKind kind,
                                                    const ReplayRule& rule = {},
                                                    bool shards = false) {
  const GoldenItem item = golden_item(scenario, kind, shards);
  const auto stream =
      StateStream::in_memory({.slot_bytes = item.bytes, .slots = scenario.steps + 1});
  run_golden(scenario, kind, rule, shards, *stream, kNoDeadline);
  std::vector<std::vector<std::byte>> items;
  for (int64_t step = 0; step <= scenario.steps; ++step) {
    const std::byte* bytes = stream->begin_read(0, step, kNoDeadline);
    items.emplace_back(bytes, bytes + item.bytes);
    stream->end_read(0);
  }
  return items;
}

template <class T>
std::vector<T> values_of(const StateLayout& layout, StateKind kind, const std::string& name,
                         const std::vector<std::byte>& item) {
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != kind || entry.name != name) continue;
    std::vector<T> values(static_cast<size_t>(entry.numel));
    std::memcpy(values.data(), item.data() + entry.offset, values.size() * sizeof(T));
    return values;
  }
  return {};
}

}  // namespace lockstep
