#include "sim/judge/foreign/slowdown.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "scenarios/json/json_text.h"
#include "sim/judge/foreign/replay.h"
#include "sim/judge/what_if.h"

namespace lockstep {
namespace {

std::vector<double> ideal_of(const PipelineTrace& trace) {
  std::vector<std::vector<double>> durations(kOpKinds);
  for (const TraceOp& op : trace.ops)
    durations[static_cast<size_t>(op.kind)].push_back(op.duration_us);
  std::vector<double> usual(kOpKinds, 0), ideal;
  for (size_t kind = 0; kind < kOpKinds; ++kind)
    if (!durations[kind].empty())
      usual[kind] = is_compute(static_cast<OpKind>(kind)) ? mean_of(durations[kind])
                                                          : median_of(std::move(durations[kind]));
  for (const TraceOp& op : trace.ops) ideal.push_back(usual[static_cast<size_t>(op.kind)]);
  return ideal;
}

class Asker {
 public:
  Asker(const PipelineTrace& trace, const TraceReplay& replay)
      : trace_(trace), replay_(replay), ideal_(ideal_of(trace)) {
    for (const TraceOp& op : trace.ops) traced_.push_back(op.duration_us);
    found_.step_ms = replay.mean_step_us(traced_) * 1e-3;
    found_.ideal_ms = replay.mean_step_us(ideal_) * 1e-3;
  }

  PipelineSlowdown ask() {
    if (found_.ideal_ms <= 0) return found_;
    found_.slowdown = found_.step_ms / found_.ideal_ms;
    for (const double us : replay_.only_us(traced_, ideal_))
      found_.dp_ranks.push_back(us * 1e-3 / found_.ideal_ms);
    for (int64_t stage = 0; stage < trace_.stages; ++stage)
      found_.stages.push_back(with_only([&](auto& op) { return op.stage == stage; }));
    rank_workers();
    std::set<std::pair<int64_t, int64_t>> worst;
    for (size_t i = 0; i < found_.worst; ++i)
      worst.emplace(found_.workers[i].dp_rank, found_.workers[i].stage);
    found_.by_worst_workers = share([&](auto& op) {
      return worst.contains({op.dp_rank, op.stage});
    });
    found_.by_last_stage = share([&](auto& op) { return op.stage == trace_.stages - 1; });
    return found_;
  }

 private:
  // With the ideal durations of those operations that `made_ideal`, in ms.
  template <class Predicate>
  double step_ms(Predicate made_ideal) const {
    std::vector<double> durations = traced_;
    for (size_t i = 0; i < durations.size(); ++i)
      if (made_ideal(trace_.ops[i])) durations[i] = ideal_[i];
    return replay_.mean_step_us(durations) * 1e-3;
  }
  template <class Predicate>
  double with_only(Predicate kept) const {
    return step_ms([&](auto& op) { return !kept(op); }) / found_.ideal_ms;
  }
  template <class Predicate>
  std::optional<double> share(Predicate made_ideal) const {
    const double lost = found_.step_ms - found_.ideal_ms;
    if (std::abs(lost) <= 1e-9 * found_.step_ms) return std::nullopt;  // rounding
    return (found_.step_ms - step_ms(made_ideal)) / lost;
  }

  void rank_workers() {
    for (int64_t stage = 0; stage < trace_.stages; ++stage)
      for (int64_t rank = 0; rank < trace_.dp_ranks; ++rank)
        found_.workers.push_back({rank, stage,
                                  std::min(found_.dp_ranks[static_cast<size_t>(rank)],
                                           found_.stages[static_cast<size_t>(stage)])});
    std::stable_sort(found_.workers.begin(), found_.workers.end(),
                     [](auto& a, auto& b) { return a.slowdown > b.slowdown; });
    found_.worst = (found_.workers.size() * kWorstPercent + 99) / 100;
  }

  const PipelineTrace& trace_;
  const TraceReplay& replay_;
  const std::vector<double> ideal_;
  std::vector<double> traced_;
  PipelineSlowdown found_;
};

}  // namespace

Expected<PipelineSlowdown> slowdown_of(const PipelineTrace& trace) {
  const auto replay = TraceReplay::of(trace);
  if (!replay) return replay.errors();
  PipelineSlowdown found = Asker(trace, replay.value()).ask();
  if (found.ideal_ms <= 0)
    return InputError{"", 0, 0, "", "no operation takes any time", "durations above 0"};
  return found;
}

nlohmann::ordered_json as_json(const PipelineSlowdown& slowdown) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const auto& worker : slowdown.workers)
    workers.push_back(
        {{"dp_rank", worker.dp_rank}, {"stage", worker.stage}, {"slowdown", worker.slowdown}});
  return {{"step_ms", slowdown.step_ms},
          {"ideal_ms", slowdown.ideal_ms},
          {"slowdown", slowdown.slowdown},
          {"by_worst_workers", or_null(slowdown.by_worst_workers)},
          {"by_last_stage", or_null(slowdown.by_last_stage)},
          {"worst", slowdown.worst},
          {"workers", std::move(workers)},
          {"dp_ranks", slowdown.dp_ranks},
          {"stages", slowdown.stages}};
}

}  // namespace lockstep
