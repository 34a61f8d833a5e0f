#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/tools/program/sweep_model.h"

namespace lockstep {

// Traced runs of two ranks that never were: layers of one parameter each, whose gradients come a
// millisecond apart, and sums that take the wire one after the other.
struct MadeProgram {
  std::vector<int64_t> elements = std::vector<int64_t>(8, 65'536);  // 0.25 MiB each
  int64_t forward_ns = 2'000'000, apart_ns = 1'000'000, finish_ns = 500'000, load_ns = 300'000;
  int64_t sum_ns = 400'000;      // of each bucket
  double sum_ns_per_byte = 4.0;  // of each byte

  int64_t sum_of(int64_t bytes) const {
    return sum_ns + static_cast<int64_t>(sum_ns_per_byte * static_cast<double>(bytes));
  }

  // The last gradient's first; the first bucket has the cap of all.
  std::vector<std::vector<int64_t>> buckets_at(double cap_mb) const {
    std::vector<std::vector<int64_t>> buckets(1);
    int64_t bytes = 0;
    for (auto p = static_cast<int64_t>(elements.size()) - 1; p >= 0; --p) {
      if (bytes >= bytes_of_mib(cap_mb)) {
        buckets.emplace_back();
        bytes = 0;
      }
      buckets.back().push_back(p);
      bytes += 4 * elements[static_cast<size_t>(p)];
    }
    return buckets;
  }

  TracedStep step_from(int64_t begin_ns, double cap_mb) const {
    TracedStep step;
    step.forward_ns = begin_ns + load_ns;
    step.backward_ns = step.forward_ns + forward_ns;
    step.backwards = 1;
    step.ready_ns.resize(elements.size());
    int64_t now_ns = step.backward_ns, free_ns = 0;
    for (const auto& bucket : buckets_at(cap_mb)) {
      int64_t bytes = 0;
      for (const int64_t p : bucket) {
        step.ready_ns[static_cast<size_t>(p)] = now_ns += apart_ns;
        bytes += 4 * elements[static_cast<size_t>(p)];
      }
      free_ns = std::max(now_ns, free_ns) + sum_of(bytes);
      step.buckets.push_back({now_ns, free_ns, bytes});
    }
    step.end_ns = std::max(now_ns, free_ns) + finish_ns;
    return step;
  }

  double step_ms(double cap_mb) const {
    return static_cast<double>(step_from(0, cap_mb).end_ns) * 1e-6;
  }

  TracedProgram run_at(double cap_mb) const {
    TracedProgram run;
    run.cap_mb = cap_mb;
    for (int64_t rank = 0; rank < 2; ++rank) {
      ProgramTimes& times = run.ranks.emplace_back();
      times.rank = rank;
      times.world = 2;
      times.given = {std::nullopt};
      ProgramTrace& trace = times.trace.emplace();
      trace.models = 1;
      trace.elements = elements;
      trace.dtypes.assign(elements.size(), "float32");
      for (auto p = static_cast<int64_t>(elements.size()) - 1; p >= 0; --p)
        trace.order.push_back(p);
      trace.rebuilds = trace.first_follows_cap = true;
      trace.first_bucket_bytes = bytes_of_mib(cap_mb);
      int64_t end_ns = 1'000'000'000;
      for (int i = 0; i < 4; ++i) {
        trace.steps.push_back(step_from(end_ns, cap_mb));
        times.step_ms.push_back(step_ms(cap_mb));
        end_ns = trace.steps.back().end_ns;
      }
      for (const TracedBucket& bucket : trace.steps.back().buckets)
        times.bucket_bytes.push_back(bucket.bytes);
    }
    return run;
  }
};

}  // namespace lockstep
