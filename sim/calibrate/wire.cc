#include "sim/calibrate/wire.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

namespace lockstep {
namespace {

std::vector<size_t> by_end(const std::vector<OnWire>& collectives) {
  std::vector<size_t> order(collectives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return collectives[a].end_ns < collectives[b].end_ns;
  });
  return order;
}

// Of collectives between which the wire was never free.
void level(const std::vector<OnWire>& collectives, const std::vector<size_t>& busy,
           std::vector<double>* times) {
  std::map<int64_t, std::vector<size_t>> sizes;
  for (const size_t which : busy) sizes[collectives[which].bytes].push_back(which);
  for (const auto& [bytes, alike] : sizes) {
    double sum = 0;
    for (const size_t which : alike) sum += (*times)[which];
    for (const size_t which : alike) (*times)[which] = sum / static_cast<double>(alike.size());
  }
}

}  // namespace

std::vector<double> wire_times_ns(const std::vector<OnWire>& collectives) {
  std::vector<double> times(collectives.size());
  int64_t free_ns = 0;
  for (const size_t which : by_end(collectives)) {
    const OnWire& one = collectives[which];
    times[which] =
        static_cast<double>(std::max<int64_t>(one.end_ns - std::max(one.begin_ns, free_ns), 0));
    free_ns = std::max(free_ns, one.end_ns);
  }
  return times;
}

std::vector<double> shared_wire_times_ns(const std::vector<OnWire>& collectives) {
  std::vector<double> times = wire_times_ns(collectives);
  std::vector<size_t> busy;
  int64_t free_ns = 0;
  for (const size_t which : by_end(collectives)) {
    if (collectives[which].begin_ns >= free_ns) {
      level(collectives, busy, &times);
      busy.clear();
    }
    busy.push_back(which);
    free_ns = collectives[which].end_ns;
  }
  level(collectives, busy, &times);
  return times;
}

}  // namespace lockstep
