#include "sim/judge/foreign/replay.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "scenarios/base/error.h"
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

std::vector<TraceReplay::Way> TraceReplay::ways() const {
  const auto ranks = static_cast<size_t>(trace_->dp_ranks);
  std::vector<Way> ways(static_cast<size_t>(trace_->steps) * ranks);
  for (size_t meeting = 0; meeting < meetings_.size(); ++meeting)
    for (const size_t op : meetings_[meeting])
      ways[step_[op] * ranks + static_cast<size_t>(trace_->ops[op].dp_rank)].push_back(
          {meeting, op});
  return ways;
}

// Which operations there are, what each waits for, and its usual duration. With whom they meet
// follows from what they are.
std::vector<int64_t> TraceReplay::signature_of(const Way& way,
                                               const std::vector<double>& usual_us) const {
  const auto what = [&](size_t op) {
    const TraceOp& o = trace_->ops[op];
    return std::tuple(o.stage, o.kind, o.sequence);
  };
  std::vector<size_t> ops;
  for (const Passed& passed : way) ops.push_back(passed.op);
  std::sort(ops.begin(), ops.end(), [&](size_t a, size_t b) { return what(a) < what(b); });
  std::vector<int64_t> signature;
  for (const size_t op : ops) {
    const auto [stage, kind, sequence] = what(op);
    signature.insert(signature.end(), {stage, static_cast<int64_t>(kind), sequence,
                                       std::bit_cast<int64_t>(usual_us[op])});
    std::vector<int64_t> after;
    for (const size_t earlier : after_[op])
      after.push_back(std::lower_bound(ops.begin(), ops.end(), earlier,
                                       [&](size_t a, size_t b) { return what(a) < what(b); }) -
                      ops.begin());
    std::sort(after.begin(), after.end());
    signature.push_back(static_cast<int64_t>(after.size()));
    signature.insert(signature.end(), after.begin(), after.end());
  }
  return signature;
}

double TraceReplay::end_us(const Way& way, const OneRank& one, std::vector<double>* ends) const {
  double last = 0;
  for (auto begin = way.begin(); begin != way.end();) {
    const auto until = std::upper_bound(begin, way.end(), *begin);
    double at = 0;
    for (auto passed = begin; passed != until; ++passed)
      for (const size_t earlier : after_[passed->op]) at = std::max(at, (*ends)[earlier]);
    for (; begin != until; ++begin) {
      const bool own = trace_->ops[begin->op].dp_rank == one.dp_rank;
      (*ends)[begin->op] = at + (own ? one.own_us : one.usual_us)[begin->op];
      last = std::max(last, (*ends)[begin->op]);
    }
  }
  return last;
}

std::vector<double> TraceReplay::only_us(const std::vector<double>& own_us,
                                         const std::vector<double>& usual_us) const {
  const auto ranks = static_cast<size_t>(trace_->dp_ranks);
  const std::vector<Way> all = ways();
  std::vector<double> sums(ranks, 0), ends(after_.size(), 0);
  for (auto step = all.begin(); step != all.end(); step += static_cast<int64_t>(ranks)) {
    std::map<std::vector<int64_t>, std::vector<size_t>> alike;  // the first two of each class
    for (size_t rank = 0; rank < ranks; ++rank)
      if (auto& known = alike[signature_of(step[static_cast<int64_t>(rank)], usual_us)];
          known.size() < 2)
        known.push_back(rank);
    for (size_t rank = 0; rank < ranks; ++rank) {
      Way way = step[static_cast<int64_t>(rank)];
      for (const auto& [signature, known] : alike) {
        const size_t other = known.front() == rank ? known.back() : known.front();
        if (other == rank) continue;  // alone in its class
        const Way& beside = step[static_cast<int64_t>(other)];
        way.insert(way.end(), beside.begin(), beside.end());
      }
      std::sort(way.begin(), way.end());
      sums[rank] += end_us(way, {static_cast<int64_t>(rank), own_us, usual_us}, &ends);
    }
  }
  for (double& sum : sums) sum /= static_cast<double>(trace_->steps);
  return sums;
}

}  // namespace lockstep
