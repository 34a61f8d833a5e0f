#include "sim/judge/foreign/replay.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "scenarios/base/check.h"
#include "sim/judge/foreign/dependencies.h"

namespace lockstep {
namespace {

// Meetings, each after all that it waits for; fewer where some wait for each other.
std::vector<std::vector<size_t>> in_order(const Dependencies& dependencies) {
  std::vector<size_t> meeting_of(dependencies.after.size());
  for (size_t i = 0; i < dependencies.meetings.size(); ++i)
    for (const size_t op : dependencies.meetings[i]) meeting_of[op] = i;
  std::vector<std::vector<size_t>> next(dependencies.meetings.size());
  std::vector<size_t> missing(dependencies.meetings.size(), 0);
  for (size_t op = 0; op < dependencies.after.size(); ++op)
    for (const size_t earlier : dependencies.after[op]) {
      next[meeting_of[earlier]].push_back(meeting_of[op]);
      ++missing[meeting_of[op]];
    }
  std::vector<size_t> ready;
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing[i] == 0) ready.push_back(i);
  for (size_t i = 0; i < ready.size(); ++i)
    for (const size_t later : next[ready[i]])
      if (--missing[later] == 0) ready.push_back(later);
  std::vector<std::vector<size_t>> meetings;
  for (const size_t place : ready) meetings.push_back(dependencies.meetings[place]);
  return meetings;
}

}  // namespace

Expected<TraceReplay> TraceReplay::of(const PipelineTrace& trace) {
  auto dependencies = dependencies_of(trace);
  if (!dependencies) return dependencies.errors();
  TraceReplay replay(trace);
  replay.meetings_ = in_order(dependencies.value());
  if (replay.meetings_.size() != dependencies.value().meetings.size())
    return InputError{"",
                      0,
                      0,
                      "",
                      "operations wait for each other in a circle",
                      "forwards and backwards in an order that can be executed"};
  replay.after_ = std::move(dependencies.value().after);
  std::map<int64_t, size_t> steps;
  for (const TraceOp& op : trace.ops)
    replay.step_.push_back(steps.emplace(op.step, steps.size()).first->second);
  return replay;
}

double TraceReplay::mean_step_us(const std::vector<double>& durations_us) const {
  LOCKSTEP_CHECK(durations_us.size() == after_.size(), "a duration for each operation");
  std::vector<double> end(durations_us.size(), 0);
  std::vector<double> steps(static_cast<size_t>(trace_->steps), 0);
  for (const auto& meeting : meetings_) {
    double begin = 0;
    for (const size_t op : meeting)
      for (const size_t earlier : after_[op]) begin = std::max(begin, end[earlier]);
    for (const size_t op : meeting) {
      end[op] = begin + durations_us[op];
      steps[step_[op]] = std::max(steps[step_[op]], end[op]);
    }
  }
  return std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
}

}  // namespace lockstep
