#include "sim/judge/foreign/dependencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

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

}  // namespace lockstep
