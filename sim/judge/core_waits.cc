#include "sim/judge/core_waits.h"

#include <algorithm>
#include <array>

#include "sim/judge/straggler.h"

namespace lockstep {
namespace {

constexpr size_t kPhases = static_cast<size_t>(Phase::teardown) + 1;

// By rank, the least over all steps; of one that never had a core in time, what is usual.
template <class Value>
std::vector<double> least_of(const std::vector<StepModel>& steps, Value value) {
  std::vector<double> least;
  for (size_t rank = 0; rank < steps.front().ranks(); ++rank) {
    least.push_back(value(steps.front(), rank));
    for (const StepModel& step : steps) least.back() = std::min(least.back(), value(step, rank));
  }
  const double usual = median_of(least);
  for (double& one : least) one = std::min(one, usual);
  return least;
}

// What is left of `value` where up to `waited` of it was waiting: never less than `least`.
double left_of(double value, double waited, double least) {
  return std::max(value - waited, std::min(value, least));
}

void relieve_work(size_t rank, double least, StepModel* step) {
  std::array<double, kPhases> work{}, waited{};
  double most = 0;  // of its work may be waiting
  for (size_t i = 0; i < kPhases; ++i) {
    work.at(i) = step->work_ns(rank, static_cast<Phase>(i));
    waited.at(i) = std::min(work.at(i), step->core_wait_ns(rank, static_cast<Phase>(i)));
    most += waited.at(i);
  }
  if (most <= 0) return;
  const double whole = step->work_ns(rank);
  const double taken = (whole - left_of(whole, most, least)) / most;
  for (StepModel::Slot& slot : step->slots)
    if (const auto phase = static_cast<size_t>(slot.phase); work.at(phase) > 0)
      slot.work_ns[rank] *= 1 - taken * waited.at(phase) / work.at(phase);
}

void relieve_delay(size_t rank, double least, StepModel* step) {
  const double whole = step->delay_ns(rank);
  if (whole <= 0) return;
  const double left = left_of(whole, step->others_core_wait_ns[rank], least);
  for (StepModel::Transfer& transfer : step->transfers) transfer.delay_ns[rank] *= left / whole;
}

}  // namespace

CoreWaits core_waits_of(const std::vector<StepModel>& steps) {
  CoreWaits waits;
  waits.mean_ms.resize(steps.empty() ? 0 : steps.front().ranks());
  for (const StepModel& step : steps) {
    std::vector<double> works;
    double longest = 0;
    for (size_t rank = 0; rank < step.ranks(); ++rank) {
      const double waited = step.core_wait_ns(rank);
      waits.mean_ms[rank] += waited / 1e6 / static_cast<double>(steps.size());
      const double delayed = std::min(step.delay_ns(rank), step.others_core_wait_ns[rank]);
      longest = std::max({longest, waited, delayed});
      works.push_back(step.work_ns(rank));
    }
    waits.busy_steps += longest > std::max(kLate * median_of(std::move(works)), kLeastMs * 1e6);
  }
  return waits;
}

std::vector<StepModel> with_cores_at_all_times(std::vector<StepModel> steps) {
  if (steps.empty()) return steps;
  const auto works =
      least_of(steps, [](const StepModel& step, size_t rank) { return step.work_ns(rank); });
  const auto delays =
      least_of(steps, [](const StepModel& step, size_t rank) { return step.delay_ns(rank); });
  for (StepModel& step : steps)
    for (size_t rank = 0; rank < step.ranks(); ++rank) {
      relieve_work(rank, works[rank], &step);
      relieve_delay(rank, delays[rank], &step);
    }
  return steps;
}

}  // namespace lockstep
