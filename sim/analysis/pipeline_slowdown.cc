#include "sim/analysis/pipeline_slowdown.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/json/json_text.h"
#include "sim/analysis/step_model.h"

namespace lockstep {
namespace {

using OpIndices = std::vector<size_t>;

// One worker's operations in one step, by kind and in sequence.
struct WorkerStep {
  std::array<OpIndices, kOpKinds> of;
  OpIndices& operator[](OpKind kind) { return of[static_cast<size_t>(kind)]; }
  const OpIndices& operator[](OpKind kind) const { return of[static_cast<size_t>(kind)]; }
};

struct Pipe {  // of one direction
  OpKind recv, compute, send;
};
constexpr Pipe kPipes[] = {
    {OpKind::forward_recv, OpKind::forward_compute, OpKind::forward_send},
    {OpKind::backward_recv, OpKind::backward_compute, OpKind::backward_send},
};

// Who meets: the same numbers, where -1 means any. Of a transfer those of the sender.
using Meeting = std::tuple<int64_t, OpKind, int64_t, int64_t, int64_t>;  // step ... sequence

class Builder {
 public:
  explicit Builder(const PipelineTrace& trace) : trace_(trace) {
    result_.after.resize(trace.ops.size());
  }

  Expected<Dependencies> build() {
    collect();
    if (!error_) check_complete();
    if (!error_)
      for (const auto& [key, worker] : workers_) add_worker(worker);
    if (!error_) meet();
    if (error_) return *error_;
    return std::move(result_);
  }

 private:
  const TraceOp& op(size_t place) const { return trace_.ops[place]; }

  void bad(const std::string& message, const std::string& allowed = "") {
    if (!error_) error_ = InputError{"", 0, 0, "", message, allowed};
  }

  void collect() {
    for (size_t i = 0; i < trace_.ops.size(); ++i)
      workers_[{op(i).step, op(i).dp_rank, op(i).stage}][op(i).kind].push_back(i);
    for (auto& [key, worker] : workers_)
      for (OpIndices& places : worker.of) {
        std::sort(places.begin(), places.end(),
                  [&](size_t a, size_t b) { return op(a).sequence < op(b).sequence; });
        for (size_t i = 0; i < places.size() && !error_; ++i) {
          const TraceOp& found = op(places[i]);
          if (found.sequence != static_cast<int64_t>(i))
            bad(fmt::format("{}: {} {} is missing or there twice", worker_of(found),
                            to_word(found.kind), i));
        }
      }
  }

  void check_complete() {
    const auto count = static_cast<int64_t>(workers_.size());
    const int64_t in_step = trace_.dp_ranks * trace_.stages;  // of at most 1e6 each
    if (in_step > count || count != in_step * trace_.steps)
      bad(fmt::format("not all of {} data-parallel ranks x {} stages are in each of {} steps",
                      trace_.dp_ranks, trace_.stages, trace_.steps),
          "whole steps of all workers");
    for (const auto& [key, worker] : workers_) {
      const auto& [step, dp_rank, stage] = key;
      if (worker[OpKind::forward_compute].empty() ||
          worker[OpKind::forward_compute].size() != worker[OpKind::backward_compute].size())
        bad(fmt::format("step {}, data-parallel rank {}, stage {}: {} forward-compute and {} "
                        "backward-compute",
                        step, dp_rank, stage, worker[OpKind::forward_compute].size(),
                        worker[OpKind::backward_compute].size()),
            "as many of both, one at least");
    }
  }

  // `place` begins after `earlier` has ended.
  void wait(size_t place, size_t earlier) { result_.after[place].push_back(earlier); }
  void chain(const OpIndices& places) {
    for (size_t i = 1; i < places.size(); ++i) wait(places[i], places[i - 1]);
  }

  void add_worker(const WorkerStep& worker) {
    OpIndices compute = worker[OpKind::forward_compute];
    const OpIndices& backward = worker[OpKind::backward_compute];
    compute.insert(compute.end(), backward.begin(), backward.end());
    std::stable_sort(compute.begin(), compute.end(),
                     [&](size_t a, size_t b) { return op(a).begin_us < op(b).begin_us; });
    chain(compute);
    for (const Pipe& pipe : kPipes) add_pipe(worker, pipe);
    add_first_backward(worker, compute);
    chain(worker[OpKind::params_all_gather]);
    if (const OpIndices& gathers = worker[OpKind::params_all_gather]; !gathers.empty())
      wait(compute.front(), gathers.back());
    OpIndices end = {compute.back()};
    for (const OpKind kind :
         {OpKind::gc, OpKind::layernorm_grads_all_reduce, OpKind::embedding_grads_all_reduce,
          OpKind::grads_reduce_scatter, OpKind::optimizer_clip_main_grad, OpKind::optimizer})
      end.insert(end.end(), worker[kind].begin(), worker[kind].end());
    chain(end);
  }

  void add_pipe(const WorkerStep& worker, const Pipe& pipe) {
    const OpIndices& compute = worker[pipe.compute];
    for (const OpKind kind : {pipe.recv, pipe.send}) {
      const OpIndices& transfers = worker[kind];
      if (!transfers.empty() && transfers.size() != compute.size()) {
        bad(fmt::format("{}: {} {} for {} {}", worker_of(op(transfers[0])), transfers.size(),
                        to_word(kind), compute.size(), to_word(pipe.compute)),
            "one for each, or none");
        return;
      }
      chain(transfers);
    }
    for (size_t i = 0; i < worker[pipe.recv].size(); ++i) {
      wait(compute[i], worker[pipe.recv][i]);
      if (i > 0) wait(worker[pipe.recv][i], compute[i - 1]);
    }
    for (size_t i = 0; i < worker[pipe.send].size(); ++i) wait(worker[pipe.send][i], compute[i]);
  }

  void add_first_backward(const WorkerStep& worker, const OpIndices& compute) {
    const auto first =
        std::find(compute.begin(), compute.end(), worker[OpKind::backward_compute].front());
    if (first - compute.begin() < 2) return;
    for (const OpKind kind : {OpKind::backward_recv, OpKind::backward_send})
      if (!worker[kind].empty()) wait(worker[kind].front(), *(first - 2));
  }

  Meeting meeting_of(size_t place) const {
    const TraceOp& o = op(place);
    switch (o.kind) {
      case OpKind::forward_recv:
        return {o.step, OpKind::forward_send, o.dp_rank, o.stage - 1, o.sequence};
      case OpKind::backward_recv:
        return {o.step, OpKind::backward_send, o.dp_rank, o.stage + 1, o.sequence};
      case OpKind::params_all_gather:
      case OpKind::grads_reduce_scatter:
        return {o.step, o.kind, -1, o.stage, o.sequence};
      case OpKind::embedding_grads_all_reduce:
        return {o.step, o.kind, o.dp_rank, -1, o.sequence};
      case OpKind::optimizer_clip_main_grad:
        return {o.step, o.kind, -1, -1, o.sequence};
      default:
        return {o.step, o.kind, o.dp_rank, o.stage, o.sequence};
    }
  }

  size_t size_of(const TraceOp& o) const {
    switch (o.kind) {
      case OpKind::forward_send:
      case OpKind::forward_recv:
      case OpKind::backward_send:
      case OpKind::backward_recv:
        return 2;
      case OpKind::params_all_gather:
      case OpKind::grads_reduce_scatter:
        return static_cast<size_t>(trace_.dp_ranks);
      case OpKind::embedding_grads_all_reduce:
        return trace_.stages > 1 ? 2 : 1;
      case OpKind::optimizer_clip_main_grad:
        return static_cast<size_t>(trace_.dp_ranks * trace_.stages);
      default:
        return 1;
    }
  }

  void meet() {
    std::map<Meeting, OpIndices> meetings;
    for (size_t i = 0; i < trace_.ops.size(); ++i) meetings[meeting_of(i)].push_back(i);
    for (auto& [key, members] : meetings) {
      const TraceOp& first = op(members.front());
      if (members.size() != size_of(first))
        bad(fmt::format("{}: {} {} has {} of {} that take part", worker_of(first),
                        to_word(first.kind), first.sequence, members.size(), size_of(first)));
      result_.meetings.push_back(std::move(members));
    }
  }

  const PipelineTrace& trace_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, WorkerStep> workers_;  // step, rank, stage
  Dependencies result_;
  std::optional<InputError> error_;
};

}  // namespace

Expected<Dependencies> dependencies_of(const PipelineTrace& trace) {
  return Builder(trace).build();
}

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
