#include <algorithm>
#include <string>
#include <string_view>

#include "sim/tools/explain/log_fields.h"
#include "sim/tools/explain/log_lines.h"

namespace lockstep {
namespace {

// What ranks write themselves, and not whoever ends them: behind "[rank3]:", or "[Rank 3]" of
// PyTorch's watchdog. In torchelastic's table stand exceptions, too.
bool is_of_running(const LogEvent& event, const LogPrefix& prefix) {
  switch (event.kind) {
    case LogEventKind::timed_out:
    case LogEventKind::progress:
    case LogEventKind::absent:
      return prefix.owner == LineOwner::process || prefix.rank < 0;
    case LogEventKind::lost_peer:
    case LogEventKind::mismatch:
    case LogEventKind::exception:
    case LogEventKind::stuck:
      return prefix.owner == LineOwner::process;
    case LogEventKind::ended:
    case LogEventKind::stopped:
    case LogEventKind::job_ended:
    case LogEventKind::node_fault:
    case LogEventKind::world:
      return false;
  }
  return false;
}

}  // namespace

// DeepSpeed's launcher says once of each node that it begins, "num_local_procs=8, node_rank=0".
bool LogReader::begins_again(std::string_view line) {
  if (line.find(kNodeBegins) == std::string_view::npos) return false;
  const int64_t node = number_after(line, " node_rank=", 0);
  if (begun_.insert(node).second) return false;
  begun_ = {node};
  return true;
}

// A part of torchelastic's table, which ends a run of its node: a second one is of another run,
// unless it is the first, printed again.
void LogReader::take_run(const LogEvent& failure, int64_t local) {
  const int64_t node = failure.rank - local;
  if (const auto run = runs_.find(node); run != runs_.end()) {
    const auto told = run->second.times.find(failure.rank);
    const bool again = told != run->second.times.end() && told->second == failure.time;
    if (!again && run->second.over > 0) forget_run(node);
  }
  constexpr size_t kNodesMost = 4096;
  if (runs_.size() >= kNodesMost && !runs_.contains(node)) return;
  Run& run = runs_[node];
  run.times[failure.rank] = failure.time;
  if (root_cause_) run.over = line_;
}

// Whose process is over, as the table says, and who tells of something, is one of another run.
void LogReader::see_running(const LogEvent& event, const LogPrefix& prefix) {
  if (runs_.empty() || event.rank < 0 || event.local || !is_of_running(event, prefix)) return;
  auto next = runs_.upper_bound(event.rank);
  if (next == runs_.begin()) return;
  const Run& run = (--next)->second;
  if (run.over > 0 && event.rank <= run.times.rbegin()->first) forget_run(next->first);
}

// Tables of other nodes, right behind that node's, are of the same run.
void LogReader::forget_run(int64_t node) {
  int64_t over = runs_.at(node).over;
  size_t at = forgotten_;
  while (at < events_.size() && (events_[at].event.line <= over || events_[at].event.by_agent))
    ++at;
  const int64_t next = at < events_.size() ? events_[at].event.line : line_;
  for (const auto& [other, run] : runs_)
    if (run.over < next) over = std::max(over, run.over);
  for (; forgotten_ < events_.size() && events_[forgotten_].event.line <= over; ++forgotten_) {
    Kept& kept = events_[forgotten_];
    kept.handled |= kept.event.kind != LogEventKind::world;
  }
  kept_.clear();
  std::erase_if(runs_, [&](const auto& run) { return run.second.over <= over; });
}

// Of torchelastic's attempts the last counts.
void LogReader::forget_attempt() {
  std::erase_if(events_, [](const Kept& kept) { return kept.event.kind != LogEventKind::world; });
  forgotten_ = 0;
  kept_.clear();
  tracebacks_.clear();
  uncaught_.clear();
  fallen_.clear();
  unclaimed_.reset();
  runs_.clear();
}

// A record of sglang's scheduler goes on in lines that name nobody, to the end of its traceback.
void LogReader::go_on_with_record(LogPrefix* prefix) {
  if (prefix->owner != LineOwner::nobody) {
    record_rank_ = prefix->of_record ? prefix->rank : -1;
    return;
  }
  const auto traceback = tracebacks_.find(record_rank_);
  if (record_rank_ < 0 || traceback == tracebacks_.end() || !traceback->second.open) return;
  prefix->rank = record_rank_;
  prefix->owner = LineOwner::job;
  prefix->uncaught = traceback->second.uncaught;
}

}  // namespace lockstep
