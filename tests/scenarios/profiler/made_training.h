#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Steps of one rank of a DDP training over Gloo as torch.profiler writes them, as text. A step: 1
// ms of loading, forward, the gradients one after the other (each also launches a bucket for 0.1 ms
// where it is the last of one), their all-reduces, the optimizer.
struct MadeTraining {
  int64_t rank = 0, world_size = 2, steps = 3;
  double forward_ms = 10, gradient_ms = 4, wire_ms = 3, optimizer_ms = 2;
  std::vector<std::vector<int64_t>> shapes = {{8}, {8, 64}, {64, 64}};  // as gradients come
  std::vector<size_t> bucket_ends = {1, 2};  // places of the last gradients of buckets
  bool with_shapes = true, with_forward = true, with_steps = true;
  std::string type = "float";
  double base_s = 1'000, late_ms = 0;  // of the clock's origin; this rank's forward is longer

  std::string text() const {
    Events events{*this};
    for (int64_t s = 0; s < steps; ++s) events.step(s);
    const std::string head =
        world_size > 1
            ? fmt::format(
                  R"("distributedInfo": {{"backend": "gloo", "rank": {}, "world_size": {}}}, )",
                  rank, world_size)
            : "";
    return fmt::format(
        R"({{"schemaVersion": 1, "deviceProperties": [], {}"baseTimeNanoseconds": {:.0f}, "traceEvents": [{}]}})",
        head, base_s * 1e9, fmt::join(events.all, ", "));
  }

 private:
  struct Events {
    const MadeTraining& made;
    std::vector<std::string> all = {};
    double now_us = 0;
    int64_t sequence = 100;

    void add(const char* category, const std::string& name, int64_t thread, double begin_us,
             double end_us, const std::string& arguments = "") {
      all.push_back(fmt::format(
          R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
          category, name, thread, begin_us, end_us - begin_us, arguments));
    }

    std::string input(const std::vector<int64_t>& shape) const {
      if (!made.with_shapes) return "";
      return fmt::format(R"("Input type": ["{}", "Scalar"], "Input Dims": [[{}], []])", made.type,
                         fmt::join(shape, ", "));
    }

    void step(int64_t number) {
      const double begin_us = now_us;
      now_us += 1e3;
      if (made.with_forward)
        add("user_annotation", "DistributedDataParallel.forward", 1, now_us, now_us + 1);
      now_us += (made.forward_ms + made.late_ms) * 1e3;
      double wire_us = backward();
      if (made.world_size == 1) wire_us = now_us;
      now_us = std::max(now_us, wire_us);
      add("user_annotation", "Optimizer.step#SGD.step", 1, now_us,
          now_us + made.optimizer_ms * 1e3);
      now_us += made.optimizer_ms * 1e3;
      if (made.with_steps)
        add("user_annotation", fmt::format("ProfilerStep#{}", number), 1, begin_us, now_us);
    }

    // When the last all-reduce ends; ranks that are `late_ms` apart end together.
    double backward() {
      sequence += 50;
      double wire_us = 0;
      int64_t elements = 0;
      for (size_t g = 0; g < made.shapes.size(); ++g) {
        add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 1, now_us,
            now_us + made.gradient_ms * 1e3,
            fmt::format(R"("Sequence number": {}, "Fwd thread id": 1)", sequence--));
        now_us += made.gradient_ms * 1e3;
        add("cpu_op", "torch::autograd::AccumulateGrad", 1, now_us - 1, now_us,
            input(made.shapes[g]));
        int64_t own = 1;
        for (const int64_t size : made.shapes[g]) own *= size;
        elements += own;
        const bool ends = std::count(made.bucket_ends.begin(), made.bucket_ends.end(), g) > 0;
        if (!ends || made.world_size == 1) continue;
        add("cpu_op", "c10d::allreduce_", 1, now_us, now_us + 100);
        now_us += 100;
        const double begin_us = now_us + 50;
        wire_us = std::max(wire_us, begin_us) + made.wire_ms * 1e3;
        add("user_annotation", "gloo:all_reduce", 9, begin_us, wire_us, input({elements}));
        elements = 0;
      }
      return wire_us;
    }
  };
};

}  // namespace lockstep
