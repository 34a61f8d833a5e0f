#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep {

// A trace of torch.profiler, as text.
class MadeTrace {
 public:
  MadeTrace() = default;
  MadeTrace(int64_t rank, int64_t world_size)
      : head_(fmt::format(
            R"("distributedInfo": {{"backend": "nccl", "rank": {}, "world_size": {}, )"
            R"("pg_config": [{{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}}]}}, )",
            rank, world_size)) {}

  MadeTrace& step(int64_t number, double begin_us, double end_us) {
    return event("user_annotation", fmt::format("ProfilerStep#{}", number), 1, begin_us, end_us,
                 "");
  }
  MadeTrace& operator_on(int64_t thread, const std::string& name, double begin_us, double end_us) {
    return event("cpu_op", name, thread, begin_us, end_us, "");
  }
  MadeTrace& of_gloo(int64_t thread, const std::string& operation, double begin_us, double end_us) {
    return event("user_annotation", "gloo:" + operation, thread, begin_us, end_us, "");
  }
  MadeTrace& launch(int64_t number, double at_us) {
    return event("cuda_runtime", "cudaLaunchKernel", 1, at_us, at_us + 1,
                 fmt::format(R"("correlation": {})", number));
  }
  MadeTrace& kernel(const std::string& name, double begin_us, double end_us,
                    const std::string& more = "") {
    return event("kernel", name, 7, begin_us, end_us,
                 R"("stream": 7)" + (more.empty() ? "" : ", " + more));
  }
  MadeTrace& all_reduce(double begin_us, double end_us, int64_t elements = 8,
                        const std::string& group = "0") {
    return kernel(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", begin_us, end_us,
        fmt::format(
            R"("Collective name": "allreduce", "In msg nelems": {0}, "Out msg nelems": {0}, )"
            R"("Process Group Name": "{1}", "dtype": "Float")",
            elements, group));
  }

  std::string text() const {
    return fmt::format(R"({{"schemaVersion": 1, "deviceProperties": [], {}"traceEvents": [{}]}})",
                       head_, events_);
  }

 private:
  MadeTrace& event(const std::string& category, const std::string& name, int64_t thread,
                   double begin_us, double end_us, const std::string& arguments) {
    events_ += fmt::format(
        R"({}{{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
        events_.empty() ? "" : ", ", category, name, thread, begin_us, end_us - begin_us,
        arguments);
    return *this;
  }

  std::string head_, events_;
};

// Ranks of a job whose steps compute for 40 ms and then call two all-reduces of 2 ms; clocks are
// seconds apart.
struct MadeTraces {
  int64_t world_size = 3, steps = 10, late = -1;
  double late_ms = 0, jitter_ms = 0.5, ends_apart_ms = 0;
  std::vector<int64_t> left_out = {};  // of the first calls, by rank

  std::vector<MadeTrace> make() const {
    std::mt19937_64 random(1);
    std::exponential_distribution<double> noise(1 / jitter_ms);
    const auto ranks = static_cast<size_t>(world_size);
    std::vector<MadeTrace> made;
    for (int64_t rank = 0; rank < world_size; ++rank) made.emplace_back(rank, world_size);
    double now = 5;
    for (int64_t call = 0; call < 2 * steps; ++call) {
      std::vector<double> came(ranks);
      double last = 0;
      for (size_t rank = 0; rank < ranks; ++rank) {
        came[rank] = now + (call % 2 == 0 ? 40 : 3) + noise(random);
        if (call % 2 == 0 && static_cast<int64_t>(rank) == late) came[rank] += late_ms;
        last = std::max(last, came[rank]);
      }
      for (size_t rank = 0; rank < ranks; ++rank) {
        const double clock_ms = 7000 * static_cast<double>(rank);
        const double end =
            last + 2 + (rank % 2 == 1 ? noise(random) * ends_apart_ms / jitter_ms : 0);
        if (rank >= left_out.size() || call >= left_out[rank])
          made[rank].all_reduce((came[rank] + clock_ms) * 1e3, (end + clock_ms) * 1e3,
                                8 + call % 2);
      }
      for (int64_t rank = 0; rank < world_size && call % 2 == 1; ++rank)
        made[static_cast<size_t>(rank)].step(
            call / 2, (now + 7000.0 * static_cast<double>(rank)) * 1e3 - 45e3,
            (last + 2 + 7000.0 * static_cast<double>(rank)) * 1e3);
      now = last + 2;
    }
    return made;
  }
};

}  // namespace lockstep
