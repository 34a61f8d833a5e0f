#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "sim/tools/explain/log_exception.h"
#include "sim/tools/explain/log_fields.h"
#include "sim/tools/explain/log_lines.h"
#include "sim/tools/explain/log_record.h"

namespace lockstep {
namespace {

using enum LogEventKind;

constexpr std::string_view kTableTraceback = "  traceback : Traceback";
constexpr std::string_view kHit = " hit an exception: Traceback";  // sglang's schedulers end of it
constexpr int64_t kPassingLines = 4;  // between the words of a thread and its traceback

// The frame that rich draws around the calls.
bool is_framed(std::string_view rest) {
  return rest.starts_with("╭") || rest.starts_with("│") || rest.starts_with("╰");
}

bool is_of_distributed(std::string_view file) {
  std::string path(file);
  std::replace(path.begin(), path.end(), '\\', '/');  // of Windows
  return path.find("torch/distributed/") != std::string::npos &&
         path.find("torch/distributed/checkpoint/") == std::string::npos;
}

bool is_of_http(std::string_view file) {
  constexpr std::array<std::string_view, 8> kOfServers = {
      "/ssl.py", "/http/client.py", "/urllib3/", "/urllib/request.py",
      "/httpx/", "/httpcore/",      "/aiohttp/", "/botocore/"};
  return holds_any(file, kOfServers);
}

}  // namespace

void LogReader::Traceback::take_file(std::string_view file) {
  in_distributed = is_of_distributed(file);
  of_server = is_of_http(file);
}

bool LogReader::take_traceback(std::string_view line, const LogPrefix& prefix) {
  size_t start = line.find(kTraceback);
  if (start == std::string_view::npos && prefix.rest.starts_with("╭"))
    start = line.find(kRichTraceback);
  if (start != std::string_view::npos) return begin_traceback(line, start, prefix);
  if (tracebacks_.empty()) return false;
  const auto found = tracebacks_.find(prefix.rank);
  if (found == tracebacks_.end() || !found->second.open) return false;
  if (native_level(prefix.rest) != '\0') return false;  // another thread's, in between
  go_on_with(&found->second, line, prefix);
  return true;
}

bool LogReader::begin_traceback(std::string_view line, size_t start, const LogPrefix& prefix) {
  LogPrefix owner = prefix;
  if (const auto rank = rank_before(line, start)) owner.rank = *rank;
  if (tracebacks_.size() >= static_cast<size_t>(kLogRankMost) && !tracebacks_.contains(owner.rank))
    return true;
  Traceback traceback;
  traceback.open = true;
  traceback.spawned = spawned_;
  traceback.of_node = spawned_ >= 0;
  // Of a checkpoint, which tells all ranks what some of them raised.
  const std::string_view told = line.substr(std::min(start + kTraceback.size(), line.size()));
  if (told.starts_with(" (RANK ")) traceback.spawned = rank_at(told.substr(7)).value_or(-1);
  if (prefix.rest.starts_with(kTableTraceback)) {
    traceback.spawned = table_rank_;
    traceback.of_node = false;
    traceback.indent = 2;
  }
  spawned_ = -1;
  traceback.uncaught =
      owner.uncaught || (owner.of_record && owner.rest.find(kHit) != std::string_view::npos) ||
      line.find("]: Traceback", start - std::min<size_t>(start, 3)) != std::string_view::npos;
  const auto passing = passing_.find(owner.rank);
  traceback.passing = passing != passing_.end() && line_ - passing->second <= kPassingLines;
  traceback.repeated = told.find(kRepeated) != std::string_view::npos;
  tracebacks_[owner.rank] = traceback;
  return true;
}

void LogReader::go_on_with(Traceback* traceback, std::string_view line, const LogPrefix& prefix) {
  LogPrefix moved = prefix;
  std::string_view& rest = moved.rest;
  if (rest.find_first_not_of(' ') >= traceback->indent)
    rest.remove_prefix(std::min(traceback->indent, rest.size()));
  if (is_framed(rest)) {
    if (rest.find(".py:") != std::string_view::npos) traceback->take_file(rest);
    return;
  }
  if (rest.empty() || rest[0] == ' ' || rest[0] == '\t') {
    if (const auto file = after(rest, "File \""); file.data() != nullptr)
      traceback->take_file(file);
    traceback->repeated |= rest.find(kRepeated) != std::string_view::npos;
    return;
  }
  end_traceback(traceback, line, moved);
}

void LogReader::end_traceback(Traceback* traceback, std::string_view line,
                              const LogPrefix& prefix) {
  traceback->open = false;
  const bool uncaught = traceback->uncaught && prefix.uncaught;
  if (!is_exception(prefix.rest)) return take_recognized(line, prefix);
  ExceptionOrigin origin = origin_of_exception(prefix.rest, traceback->in_distributed);
  if (origin == ExceptionOrigin::communication && traceback->of_server)
    origin = ExceptionOrigin::unclear;
  const size_t before = events_.size();
  if (origin != ExceptionOrigin::own) take_recognized(line, prefix);
  // A line of the table, which says more; or one after which another attempt begins, of which the
  // traceback is not.
  if (events_.size() > before) events_.back().event.certain |= uncaught;
  if (events_.size() > before || tracebacks_.empty()) return;
  if (traceback->passing && origin != ExceptionOrigin::communication) return;
  LogEvent event;
  event.certain = uncaught || traceback->spawned >= 0;
  event.rank = traceback->spawned;
  event.of_spawn = traceback->of_node;
  event.repeated = traceback->repeated;
  switch (origin) {
    case ExceptionOrigin::launcher:
      return;
    case ExceptionOrigin::own:
      event.kind = LogEventKind::exception;
      event.own = true;
      forget_chained(prefix.rest, event.rank < 0 ? prefix.rank : event.rank);
      break;
    case ExceptionOrigin::unclear:
      event.kind = LogEventKind::exception;
      event.certain = false;
      break;
    case ExceptionOrigin::communication:
      event.kind = lost_peer;
      break;
    case ExceptionOrigin::stop:
      event.kind = stopped;
      break;
    case ExceptionOrigin::interrupt:
      event.kind = job_ended;
      event.ordered = true;
      break;
  }
  keep(std::move(event), prefix, prefix.rest);
  if (events_.size() == before) return;
  note_uncaught(prefix, false);
  if (!events_.back().event.own || prefix.owner != LineOwner::nobody || traceback->spawned >= 0)
    return;
  unclaimed_ = before;
  steps_after_ = 0;
}

void LogReader::note_uncaught(const LogPrefix& prefix, bool alone) {
  if (!prefix.uncaught || events_.empty() || !events_.back().event.certain) return;
  events_.back().by_prefix = true;
  if (uncaught_.size() < static_cast<size_t>(kLogRankMost))
    uncaught_[prefix.rank] = {events_.size() - 1, alone};
}

// A launcher or the program itself may write "[rank3]: " as well: who trains on was caught.
void LogReader::doubt_uncaught(const LogPrefix& prefix) {
  const auto found = uncaught_.find(prefix.rank);
  if (found == uncaught_.end() || !prefix.uncaught || prefix.rest.empty()) return;
  if (!found->second.alone && !tells_of_steps(prefix.rest)) return;
  events_[found->second.event].event.certain = false;
  uncaught_.erase(found);
}

// The exception before was caught: what its handler raised ended the process.
void LogReader::forget_handled(const LogPrefix& prefix) {
  if (events_.empty()) return;
  Kept& last = events_.back();
  if (last.event.kind == LogEventKind::exception && last.event.rank == prefix.rank)
    last.handled = true;
}

// A worker of the DataLoader ended: what its rank saw of that first, a lost connection, is no
// peer's.
void LogReader::forget_chained(std::string_view last, int64_t rank) {
  if (last.find("DataLoader worker") == std::string_view::npos || events_.empty()) return;
  Kept& before = events_.back();
  if (before.event.kind == lost_peer && before.event.rank == rank) before.handled = true;
}

// "Last error:" stands behind the exception of a failed call of NCCL, and tells what failed: in the
// rank itself, where it seemed to be a peer.
void LogReader::explain_lost(const LogPrefix& prefix) {
  constexpr int64_t kLinesOfTheMessage = 4;
  const auto last = std::find_if(events_.rbegin(), events_.rend(),
                                 [&](const Kept& kept) { return kept.event.rank == prefix.rank; });
  if (last != events_.rend() && last->event.kind == lost_peer &&
      line_ - last->event.line <= kLinesOfTheMessage)
    last->handled = true;
}

// Where launchers saw one rank fail, with the exit code of an exception, and others only because
// they ended these, then the one traceback that nobody's name stands before is that rank's.
void LogReader::own_what_nobody_claims() {
  Kept *claimed = nullptr, *root = nullptr;
  for (Kept& kept : events_) {
    const LogEvent& event = kept.event;
    if (kept.handled) continue;
    if (event.kind == ended && (event.by_agent || event.first || event.of_task)) {
      const bool same = root != nullptr && root->event.rank == event.rank;
      if (event.rank < 0 || event.local || same) continue;
      if (root != nullptr || event.code != 1 || event.signal != 0) return;
      root = &kept;
    } else if (event.rank < 0 && !kept.outlived && !event.hint && root == nullptr) {
      if (event.kind == LogEventKind::exception && event.own && claimed == nullptr)
        claimed = &kept;
      else if (event.kind != world && event.kind != stopped && event.kind != node_fault)
        return;
    }
  }
  if (root == nullptr || claimed == nullptr) return;
  const bool told = std::any_of(events_.begin(), events_.end(), [&](const Kept& kept) {
    return kept.event.kind == LogEventKind::exception && kept.event.rank == root->event.rank;
  });
  if (!told) claimed->event.rank = root->event.rank;
}

// Others may print a step or two before they wait for who raised it: more were trained after it was
// caught.
void LogReader::doubt_unclaimed(const LogPrefix& prefix) {
  constexpr int64_t kStepsOfOthers = 5;
  if (!unclaimed_ || prefix.owner != LineOwner::nobody || !counts_a_step(prefix.rest)) return;
  if (++steps_after_ < kStepsOfOthers) return;
  events_[*unclaimed_].outlived = true;
  unclaimed_.reset();
}

// The last line of an exception alone, as excerpts have it: it may have been caught.
void LogReader::take_bare(const LogPrefix& prefix) {
  const std::string_view type =
      prefix.rest.substr(0, std::min(prefix.rest.find(": "), size_t{120}));
  if (!type.ends_with("Error") || !is_exception(prefix.rest)) return;
  // What follows another line of the rank's is part of its message.
  const auto kept = kept_.lower_bound({prefix.rank, LogEventKind{}});
  if ((kept != kept_.end() && kept->first.first == prefix.rank) ||
      tracebacks_.contains(prefix.rank))
    return;
  LogEvent event;
  switch (origin_of_exception(prefix.rest, false)) {
    case ExceptionOrigin::communication:
      event.kind = lost_peer;
      break;
    case ExceptionOrigin::own:
    case ExceptionOrigin::unclear:
      event.kind = LogEventKind::exception;
      break;
    case ExceptionOrigin::launcher:
    case ExceptionOrigin::stop:
    case ExceptionOrigin::interrupt:
      return;
  }
  keep(std::move(event), prefix, prefix.rest);
}

// Of an uncaught exception, without the calls before it.
void LogReader::take_last_line(const LogPrefix& prefix) {
  LogEvent event;
  event.kind = LogEventKind::exception;
  event.own = event.certain = true;
  const size_t before = events_.size();
  keep(std::move(event), prefix, prefix.rest);
  if (events_.size() > before) note_uncaught(prefix, true);
}

}  // namespace lockstep
