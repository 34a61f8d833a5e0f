#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>

#include "scenarios/base/text.h"
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

// Of "2025-02-19_17:36:20", as torchelastic writes it, or -1.
int64_t second_of(std::string_view time) {
  const auto number = [&](size_t at, size_t digits) {
    return at + digits > time.size() ? -1
                                     : number_in<int64_t>(time.substr(at, digits)).value_or(-1);
  };
  const std::chrono::year_month_day day(std::chrono::year(static_cast<int>(number(0, 4))),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2))));
  const int64_t hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (!day.ok() || hour < 0 || minute < 0 || second < 0) return -1;
  const int64_t days = std::chrono::sys_days(day).time_since_epoch().count();
  return ((24 * days + hour) * 60 + minute) * 60 + second;
}

// Tables further apart than ranks wait for each other are of several runs.
bool are_apart(int64_t second, int64_t other, int64_t hours) {
  return second >= 0 && other >= 0 && std::abs(second - other) > hours * 3600;
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

// What other nodes' tables told long before is of another run.
void LogReader::forget_old_runs(int64_t second) {
  constexpr int64_t kHours = 12;
  const auto old = std::find_if(runs_.begin(), runs_.end(), [&](const auto& run) {
    return run.second.over > 0 && are_apart(run.second.second, second, kHours);
  });
  if (old != runs_.end()) forget_run(old->first);
}

// A part of torchelastic's table, which ends a run of its node: a second one is of another run,
// unless it is the first, printed again.
void LogReader::take_run(const LogEvent& failure, int64_t local) {
  const int64_t second = second_of(failure.time);
  forget_old_runs(second);
  const int64_t node = failure.rank - local;
  if (const auto run = runs_.find(node); run != runs_.end()) {
    const auto told = run->second.times.find(failure.rank);
    const bool again = told != run->second.times.end() && told->second == failure.time;
    if (!again && run->second.over > 0) forget_run(node);
  }
  constexpr size_t kNodesMost = 1024;
  if (runs_.size() >= kNodesMost && !runs_.contains(node)) return;
  Run& run = runs_[node];
  run.times[failure.rank] = failure.time;
  run.second = second;
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
  constexpr int64_t kHours = 2;
  int64_t over = runs_.at(node).over;
  const int64_t second = runs_.at(node).second;
  size_t at = forgotten_;
  while (at < events_.size() && (events_[at].event.line <= over || events_[at].event.by_agent))
    ++at;
  const int64_t next = at < events_.size() ? events_[at].event.line : line_;
  for (const auto& [other, run] : runs_)
    if (run.over < next && !are_apart(run.second, second, kHours)) over = std::max(over, run.over);
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
