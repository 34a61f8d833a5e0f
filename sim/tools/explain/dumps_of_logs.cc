#include "sim/tools/explain/dumps_of_logs.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

struct OperationName {
  std::string_view in_logs, in_dumps;
};
constexpr std::array kOperations = {
    OperationName{"ALLREDUCE", "all_reduce"},
    OperationName{"BROADCAST", "broadcast"},
    OperationName{"ALLGATHER", "all_gather"},
    OperationName{"_ALLGATHER_BASE", "_all_gather_base"},
    OperationName{"REDUCE_SCATTER", "reduce_scatter"},
    OperationName{"_REDUCE_SCATTER_BASE", "_reduce_scatter_base"},
    OperationName{"ALLTOALL", "all_to_all"},
    OperationName{"ALLTOALL_BASE", "all_to_all"},
    OperationName{"REDUCE", "reduce"},
    OperationName{"GATHER", "gather"},
    OperationName{"SCATTER", "scatter"},
    OperationName{"BARRIER", "barrier"},
};

// Of which sequence numbers count otherwise: several sends and receives, or part of a group.
bool is_point_to_point(const std::string& operation) {
  constexpr std::array kNames = {"SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN"};
  return std::find(kNames.begin(), kNames.end(), operation) != kNames.end();
}

std::string operation_name(const std::string& operation) {
  for (const OperationName& name : kOperations)
    if (name.in_logs == operation) return std::string(name.in_dumps);
  return operation;
}

// The line that says what was called names no group: two of one number may be of two groups.
void take_work(const LogEvent& event, const LogEvent** work) {
  static const LogEvent kUnclear;
  if (*work == nullptr)
    *work = &event;
  else if ((*work)->operation != event.operation || (*work)->sizes != event.sizes)
    *work = &kUnclear;
}

// `work`: of what it tells, the line that says what was called.
void add_to(FlightDump* dump, const LogEvent& event, const LogEvent& work) {
  dump->groups.try_emplace(event.group, FlightGroup{event.description, nullptr});
  FlightStatus& status = dump->status[event.group];
  // The first report counts: later ones are of a job that is being taken down.
  if (status.enqueued < 0 && event.enqueued >= 0) status = {event.enqueued, event.completed};
  if (event.kind != LogEventKind::timed_out || event.sequence < 0) return;
  const auto same =
      std::find_if(dump->entries.begin(), dump->entries.end(), [&](const FlightEntry& entry) {
        return entry.group == event.group && entry.sequence == event.sequence;
      });
  if (same != dump->entries.end()) return;
  FlightEntry entry;
  entry.record = static_cast<int64_t>(dump->entries.size());
  entry.group = event.group;
  entry.sequence = event.sequence;
  entry.operation = operation_name(work.operation);
  entry.point_to_point = is_point_to_point(work.operation);
  entry.sizes = work.sizes;
  status.enqueued = std::max(status.enqueued, event.sequence);
  dump->entries.push_back(std::move(entry));
}

}  // namespace

std::vector<FlightDump> with_logs(const JobEvidence& job) {
  std::vector<FlightDump> dumps = job.dumps;
  std::set<int64_t> dumped;
  for (const FlightDump& dump : dumps) dumped.insert(dump.rank);
  std::map<int64_t, FlightDump> told;
  std::map<std::pair<int64_t, int64_t>, const LogEvent*> works;
  for (const LogEvent& event : job.events)
    if (event.kind == LogEventKind::timed_out && !event.operation.empty())
      take_work(event, &works[{event.rank, event.sequence}]);
  for (const LogEvent& event : job.events) {
    if (event.rank < 0 || event.group.empty() || dumped.contains(event.rank)) continue;
    const auto work = works.find({event.rank, event.sequence});
    add_to(&told[event.rank], event, work == works.end() ? event : *work->second);
  }
  for (auto& [rank, dump] : told) {
    dump.rank = rank;
    dump.from_log = true;
    dumps.push_back(std::move(dump));
  }
  std::sort(dumps.begin(), dumps.end(),
            [](const FlightDump& a, const FlightDump& b) { return a.rank < b.rank; });
  return dumps;
}

}  // namespace lockstep
