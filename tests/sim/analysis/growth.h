#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {

// How many times as long `work` takes for 4 n as for n: the least of several pairs, since other
// processes only ever make it look worse. About 4 of what is linear, 16 of a square. It stops as
// soon as `enough` is reached.
template <class Work>
double growth_of(Work work, int64_t n, double enough) {
  const auto seconds = [&](int64_t size) {
    auto made = work(size);  // not timed: what is made before
    const auto begin = std::chrono::steady_clock::now();
    made();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  double least = 1e9;
  for (int i = 0; i < 8 && least > enough; ++i) {
    const double few = seconds(n);
    least = std::min(least, seconds(4 * n) / few);
  }
  return least;
}

}  // namespace lockstep
