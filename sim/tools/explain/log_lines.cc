#include "sim/tools/explain/log_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "scenarios/base/text.h"
#include "sim/tools/explain/log_exception.h"
#include "sim/tools/explain/log_fields.h"
#include "sim/tools/explain/log_patterns.h"
#include "sim/tools/explain/needles.h"

namespace lockstep {
namespace {

using enum LogEventKind;

constexpr int64_t kKeptOfAKind = 16;   // events of one rank and kind
constexpr size_t kKeptMost = 200'000;  // events of a file

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
constexpr std::string_view kRootCause = "Root Cause (first observed failure)";
constexpr std::string_view kElastic = "torch.distributed.elastic";
constexpr std::string_view kSpawned = "-- Process ";
constexpr std::string_view kStepEnds = "Terminating StepId=";
constexpr std::string_view kTime = "  time      : ";
constexpr std::string_view kRank = "  rank      : ";
constexpr std::string_view kExitCode = "  exitcode  : ";

// A line without any of these says nothing by itself.
const Needles& known_words() {
  static const Needles words = [] {
    std::vector<std::string_view> all = {kTraceback, kRootCause, kElastic, kSpawned,
                                         kStepEnds,  kTime,      kRank,    kExitCode};
    for (const LogPattern& pattern : log_patterns()) all.emplace_back(pattern.needle);
    return Needles(std::move(all));
  }();
  return words;
}

// "[rank3]:" anywhere before `end`, the last one: what a progress bar left may stand before it.
std::optional<int64_t> global_rank(std::string_view line, size_t end) {
  const size_t at = line.substr(0, end).rfind("[rank");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + 5);
  const size_t close = rest.find("]:");
  if (close == 0 || close > 6) return std::nullopt;
  const auto rank = number_in<int64_t>(rest.substr(0, close));
  return rank && *rank >= 0 && *rank < kLogRankMost ? rank : std::nullopt;
}

// "[Rank 3]": of the job in the default group only, and where no group is named before 2.3.
std::optional<int64_t> group_rank(std::string_view line, const LogEvent& event) {
  if (!event.group.empty() && event.description != "default_pg") return std::nullopt;
  for (const char* key : {"[Rank ", " Rank "})
    if (const std::string_view rest = after(line, key); rest.data() != nullptr)
      return rank_at(rest);
  return std::nullopt;
}

size_t skip_colors(std::string_view line) {
  size_t at = 0;
  while (line.substr(at).starts_with("\x1b[")) {
    const size_t end = line.find('m', at);
    if (end == std::string_view::npos) break;
    at = end + 1;
  }
  return at;
}

bool take_bracket(std::string_view open, std::string_view close, LogPrefix* prefix, size_t most) {
  if (!prefix->rest.starts_with(open)) return false;
  const size_t end = prefix->rest.find(close);
  if (end == std::string_view::npos || end > open.size() + most) return false;
  const auto rank = number_in<int64_t>(prefix->rest.substr(open.size(), end - open.size()));
  if (!rank || *rank < 0 || *rank >= kLogRankMost) return false;
  prefix->rank = *rank;
  prefix->rest.remove_prefix(end + close.size());
  return true;
}

// "[1,3]<stderr>:" of mpirun.
bool take_tagged(LogPrefix* prefix) {
  const size_t close = prefix->rest.find(">:");
  if (!prefix->rest.starts_with("[1,") || close == std::string_view::npos || close > 24)
    return false;
  const auto rank = rank_at(prefix->rest.substr(3));
  if (!rank) return false;
  prefix->rank = *rank;
  prefix->rest.remove_prefix(close + 2);
  return true;
}

// "3: " of srun --label, with spaces before it.
bool take_label(LogPrefix* prefix) {
  size_t at = 0;
  while (at < prefix->rest.size() && at < 6 && prefix->rest[at] == ' ') ++at;
  size_t end = at;
  while (end < prefix->rest.size() && end - at < 6 && is_digit(prefix->rest[end])) ++end;
  if (end == at || !prefix->rest.substr(end).starts_with(": ")) return false;
  const auto rank = rank_at(prefix->rest.substr(at));
  if (!rank) return false;
  prefix->rank = *rank;
  prefix->rest.remove_prefix(end + 2);
  return true;
}

}  // namespace

LogPrefix log_prefix(std::string_view line) {
  LogPrefix prefix;
  prefix.rest = line.substr(skip_colors(line));
  if (take_bracket("[default", "]:", &prefix, 6))
    prefix.local = true;
  else if (!take_tagged(&prefix))
    take_label(&prefix);
  const LogPrefix launcher = prefix;
  if (take_bracket("[rank", "]:", &prefix, 6)) {
    prefix.local = false;
    prefix.uncaught = prefix.rest.empty() || prefix.rest[0] == ' ';
  } else {
    prefix = launcher;
  }
  if (prefix.rest.starts_with(" ") && prefix.rank >= 0 && (prefix.uncaught || prefix.local))
    prefix.rest.remove_prefix(1);
  return prefix;
}

LogReader::LogReader(std::string file, int64_t rank) : file_(std::move(file)), file_rank_(rank) {}

void LogReader::see(int64_t rank) {
  if (told_rank_ < 0) told_rank_ = rank;
  if (ranks_.size() < static_cast<size_t>(kLogRankMost)) ranks_.insert(rank);
}

void LogReader::take(std::string_view line) {
  if (line.empty()) return;
  LogPrefix prefix = log_prefix(line);
  if (prefix.rank < 0)
    prefix.rank = file_rank_;
  else if (!prefix.local)
    see(prefix.rank);
  const bool known = known_words().any_in(line);
  if ((known || !tracebacks_.empty()) && take_traceback(line, prefix)) return;
  if (known) take_recognized(line, prefix);
}

void LogReader::keep(LogEvent event, const LogPrefix& prefix, std::string_view text) {
  if (event.rank < 0) {
    event.rank = prefix.rank;
    event.local = prefix.local;
  }
  if (events_.size() >= kKeptMost) return;
  if (kept_[{event.local ? -2 - event.rank : event.rank, event.kind}]++ >= kKeptOfAKind) return;
  event.text = cut(text);
  event.file = file_;
  event.line = line_;
  events_.push_back(std::move(event));
}

void LogReader::take_recognized(std::string_view line, const LogPrefix& prefix) {
  auto recognized = recognize(line);
  if (!recognized) return take_field(line, prefix);
  const LogPattern& pattern = recognized->pattern;
  LogEvent event = std::move(recognized->event);
  if (event.kind == world && event.world <= 0) return;
  if (event.rank < 0) {
    if (const auto rank = global_rank(line, line.find(pattern.needle))) {
      event.rank = *rank;
      see(*rank);
    } else if (prefix.rank < 0 &&
               (event.kind == timed_out || event.kind == progress || event.kind == absent)) {
      event.rank = group_rank(line, event).value_or(-1);
    }
  }
  if (event.kind == job_ended) step_ends_ = true;
  if (pattern.writer == LogWriter::agent) {
    agent_ = true;
    event.signal = event.code < 0 ? -event.code : 0;
  }
  if (event.kind == ended && event.signal == 15) event.kind = stopped;
  if (pattern.writer != LogWriter::slurm) return keep(std::move(event), prefix, prefix.rest);
  if (event.ranks.empty() || (event.code == 0 && event.signal == 0)) return;
  if (step_ends_) event.kind = stopped;
  const std::set<int64_t> tasks = std::move(event.ranks);
  event.ranks.clear();
  for (const int64_t task : tasks) {
    event.rank = agent_ ? -1 : task;
    keep(event, prefix, prefix.rest);
  }
}

// torchelastic's table, a failure a part; a part ends with its exit code.
void LogReader::take_field(std::string_view line, const LogPrefix& prefix) {
  if (line.find(kRootCause) != std::string_view::npos) {
    root_cause_ = agent_ = true;
    failure_ = {};
  } else if (line.find(kElastic) != std::string_view::npos) {
    agent_ = true;
  } else if (const auto spawned = after(line, kSpawned); spawned.data() != nullptr) {
    if (line.find(" terminated with the following error:") != std::string_view::npos)
      spawned_ = rank_at(spawned).value_or(-1);
  } else if (line.find(kStepEnds) != std::string_view::npos) {
    step_ends_ = true;
  } else if (const auto time = after(line, kTime); time.data() != nullptr) {
    failure_.time = cut(time.substr(0, 40));
  } else if (const auto rank = after(line, kRank); rank.data() != nullptr) {
    failure_.rank = rank_at(rank).value_or(-1);
    const int64_t local = number_after(rank, "local_rank: ");
    if (failure_.rank >= 0 && local >= 0) node_offset_ = failure_.rank - local;
  } else if (const auto code = after(line, kExitCode);
             code.data() != nullptr && failure_.rank >= 0) {
    const int64_t number = leading_number(code).value_or(1);
    failure_.code = number;
    failure_.signal = number < 0 ? -number : 0;
    failure_.kind = failure_.signal == 15 ? stopped : ended;
    failure_.first = root_cause_;
    keep(failure_, prefix, prefix.rest);
    failure_ = {};
  }
}

bool LogReader::take_traceback(std::string_view line, const LogPrefix& prefix) {
  const size_t start = line.find(kTraceback);
  if (start != std::string_view::npos) {
    LogPrefix owner = prefix;
    if (const auto rank = global_rank(line, start)) owner.rank = *rank;
    if (tracebacks_.size() >= static_cast<size_t>(kLogRankMost) &&
        !tracebacks_.contains(owner.rank))
      return true;
    Traceback& traceback = tracebacks_[owner.rank];
    traceback.open = true;
    traceback.in_distributed = false;
    traceback.spawned = spawned_;
    spawned_ = -1;
    traceback.uncaught =
        owner.uncaught ||
        line.find("]: Traceback", start - std::min<size_t>(start, 3)) != std::string_view::npos;
    return true;
  }
  if (tracebacks_.empty()) return false;
  const auto found = tracebacks_.find(prefix.rank);
  if (found == tracebacks_.end()) return false;
  Traceback& traceback = found->second;
  const std::string_view rest = prefix.rest;
  if (!traceback.open) return false;
  if (rest.empty() || rest[0] == ' ' || rest[0] == '\t') {
    if (const auto file = after(rest, "File \""); file.data() != nullptr)
      traceback.in_distributed = file.find("torch/distributed/") != std::string_view::npos;
    return true;
  }
  end_traceback(&traceback, line, prefix);
  return true;
}

void LogReader::end_traceback(Traceback* traceback, std::string_view line,
                              const LogPrefix& prefix) {
  traceback->open = false;
  const bool uncaught = traceback->uncaught && prefix.uncaught;
  if (!is_exception(prefix.rest)) return take_recognized(line, prefix);
  const size_t before = events_.size();
  take_recognized(line, prefix);
  if (events_.size() > before) return;  // a line of the table, which says more
  LogEvent event;
  event.certain = uncaught || traceback->spawned >= 0;
  event.rank = traceback->spawned;
  switch (origin_of_exception(prefix.rest, traceback->in_distributed)) {
    case ExceptionOrigin::launcher:
      return;
    case ExceptionOrigin::own:
      event.kind = LogEventKind::exception;
      event.own = true;
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
  }
  keep(std::move(event), prefix, prefix.rest);
}

std::vector<LogEvent> LogReader::finish() {
  const int64_t mine = told_rank_ >= 0 ? told_rank_ : file_rank_;
  for (LogEvent& event : events_) {
    if (event.local && node_offset_ >= 0 && event.rank >= 0) {
      event.rank += node_offset_;
      event.local = false;
    }
    if (file_rank_ >= 0 && event.rank == file_rank_ && !event.local) event.rank = mine;
    if (event.rank >= 0 && event.kind != LogEventKind::ended && event.kind != stopped)
      ranks_.insert(event.rank);
  }
  if (file_rank_ >= 0) ranks_.insert(mine);
  return std::move(events_);
}

}  // namespace lockstep
