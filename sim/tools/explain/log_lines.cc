#include "sim/tools/explain/log_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "sim/tools/explain/file_rank.h"
#include "sim/tools/explain/log_exception.h"
#include "sim/tools/explain/log_fields.h"
#include "sim/tools/explain/log_json.h"
#include "sim/tools/explain/log_patterns.h"
#include "sim/tools/explain/log_record.h"
#include "sim/tools/explain/needles.h"

namespace lockstep {
namespace {

using enum LogEventKind;

constexpr int64_t kKeptOfAKind = 16;   // events of one rank and kind
constexpr size_t kKeptMost = 200'000;  // events of a file
constexpr int64_t kSigkill = 9, kSigterm = 15, kExitOfSigterm = 128 + kSigterm;
constexpr size_t kKilledMost = 100'000;
constexpr int64_t kWrappedMost = 2;  // lines that a launcher breaks one into

constexpr std::string_view kRootCause = "Root Cause (first observed failure)";
constexpr std::string_view kElastic = "torch.distributed.elastic";
constexpr std::string_view kSpawned = "-- Process ";
constexpr std::array<std::string_view, 5> kStepEnds = {
    "Terminating StepId=", "Terminating job step", "Force Terminated", "forcing job termination",
    "Job step aborted"};
constexpr std::string_view kRestart = "will restart worker group";
// A launcher's first words: what the log told before is of a run that is over. Of several nodes'
// launchers none begins after a failure.
constexpr std::array<std::string_view, 2> kBegins = {
    "Starting elastic_operator with launch configs", "DUE TO JOB REQUEUE"};
// Of torchrun alone: PyTorch 1.8's launcher printed it, so that it comes after what failed.
constexpr std::string_view kThreads =
    "Setting OMP_NUM_THREADS environment variable for each process";
constexpr std::array<std::string_view, 2> kTorchrun = {"torch.distributed.run",
                                                       "torch/distributed/run.py:"};
// What torchrun logs stands in its own file, into which all ranks of its node may write.
constexpr std::array<std::string_view, 2> kTorchrunsOwn = {":torch.distributed.run:",
                                                           "torch/distributed/run.py:"};
constexpr int64_t kWarningLines = 3;
constexpr std::string_view kHandling = "During handling of the above exception, another";
constexpr std::string_view kCause = "The above exception was the direct cause of";
// Before the traceback of what a thread, a destructor, a task or a handler of logs raised: none of
// these ends its process.
constexpr std::array<std::string_view, 5> kPassing = {
    "Exception in thread ", "Exception ignored ", "--- Logging error ---",
    "Task exception was never retrieved", "Future exception was never retrieved"};
// Who wrote so many lines after an exception that nobody is said to have left uncaught, caught it.
constexpr int64_t kLinesOfTheEnd = 200;
constexpr std::string_view kProcessName = "Process name: ";
constexpr std::string_view kTime = "  time      : ";
constexpr std::string_view kRank = "  rank      : ";
constexpr std::string_view kExitCode = "  exitcode  : ";
constexpr std::string_view kClosing = " closing signal ";
constexpr std::string_view kForced = "Unable to shutdown process ";
constexpr std::string_view kOutOfMemory = " out of memory.", kOfGarbage = "more than 1EB memory";

// A line without any of these says nothing by itself.
const Needles& known_words() {
  static const Needles words = [] {
    std::vector<std::string_view> all = {
        kRichTraceback, kTraceback, kRootCause, kElastic, kSpawned, kTime, kRank,
        kExitCode,      kHandling,  kRestart,   kClosing, kForced,  kCause};
    all.insert(all.end(), kPassing.begin(), kPassing.end());
    all.insert(all.end(), kStepEnds.begin(), kStepEnds.end());
    all.insert(all.end(), kBegins.begin(), kBegins.end());
    all.insert(all.end(), kTorchrun.begin(), kTorchrun.end());
    all.push_back(kThreads);
    all.push_back(kNodeBegins);
    all.push_back(kOutOfMemory);
    for (const LogPattern& pattern : log_patterns()) all.emplace_back(pattern.needle);
    return Needles(std::move(all));
  }();
  return words;
}

// "[Rank 3]": of the job in the default group only, and where no group is named before 2.3.
std::optional<int64_t> group_rank(std::string_view line, const LogEvent& event) {
  if (!event.group.empty() && event.description != "default_pg") return std::nullopt;
  for (const char* key : {"[Rank ", " Rank "})
    if (const std::string_view rest = after(line, key); rest.data() != nullptr)
      return rank_at(rest);
  return std::nullopt;
}

// "torch.OutOfMemoryError: CUDA out of memory.", or HIP, or XPU.
bool tells_of_memory(std::string_view text) {
  return is_exception(text) && text.find("OutOfMemoryError: ") != std::string_view::npos &&
         text.find(kOutOfMemory) != std::string_view::npos &&
         text.find(kOfGarbage) == std::string_view::npos;
}

}  // namespace

LogReader::LogReader(std::string file, int64_t rank) : file_(std::move(file)), file_rank_(rank) {}

void LogReader::see(const LogPrefix& prefix) {
  if (prefix.owner == LineOwner::label) ++labels_;
  if (labels_ > 0 && counted_ != line_) ++lines_;
  if (prefix.owner == LineOwner::number)
    numbered_ = true;
  else
    unnumbered_ |= numbered_;
  counted_ = line_;
  std::set<int64_t>& ranks = prefix.owner == LineOwner::process ? told_ : labelled_;
  if (prefix.role_rank) told_twice_.insert(prefix.rank);
  if (prefix.rank >= 0 && !prefix.local() && prefix.owner != LineOwner::number &&
      ranks.size() < static_cast<size_t>(kLogRankMost))
    ranks.insert(prefix.rank);
  role_ranks_ |= prefix.role_rank;
  if (prefix.node_rank >= 0) set_node_offset(prefix.rank, prefix.node_rank);
}

// PyTorch's hook writes "[rank3]: " before tracebacks alone. Before what is none, a launcher or the
// program does, and may before one that was caught.
void LogReader::see_prefixed(const LogPrefix& prefix) {
  const std::string_view text = prefix.rest;
  if (!prefix.uncaught || prefix.owner != LineOwner::process || text.empty()) return;
  if (text[0] == ' ' || static_cast<unsigned char>(text[0]) >= 0x80) return;  // of a traceback
  constexpr std::array<std::string_view, 3> kOfTracebacks = {kTraceback, kHandling, kCause};
  prefixed_ |=
      !tracebacks_.contains(prefix.rank) && !is_exception(text) && !holds_any(text, kOfTracebacks);
}

void LogReader::set_node_offset(int64_t rank, int64_t local) {
  if (rank >= local && local >= 0 && node_offsets_.size() < 2) node_offsets_.insert(rank - local);
}

void LogReader::take(std::string_view line) {
  const std::string_view bare = after_time(line);
  const auto record = bare.starts_with("{\"") ? json_record(bare) : std::nullopt;
  if (!record) return take_line(line, -1);
  for (std::string_view text = record->text; !text.empty();) {
    const size_t end = std::min(text.find('\n'), text.size());
    take_line(text.substr(0, end), record->rank);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (record->rank >= 0) named_.insert(record->rank);
}

// rank: as the record says in which the line stood, or -1.
void LogReader::take_line(std::string_view line, int64_t rank) {
  if (line.empty()) {
    wrapped_ = 0;
    return;
  }
  if (line.find('\x1b') != std::string_view::npos) line = plain_ = without_escapes(line);
  if (is_time_alone(line) || take_section(line)) return;
  LogPrefix prefix = log_prefix(line, &hosts_);
  const bool known = known_words().any_in(line);
  go_on_with_record(&prefix);
  see(prefix);
  if (known) see_agent(line, prefix);
  if (rank < 0) rank = section_rank_;
  if (prefix.rank < 0 && rank >= 0) {
    prefix.rank = rank;
    prefix.owner = LineOwner::job;
  }
  if (prefix.rank < 0) prefix.rank = file_rank_;
  if (prefix.rank >= 0 && prefix.rank < kLogRankMost) ++lines_of_[prefix.rank];
  if (wrapped_ > 0) take_wrapped(prefix.rest);
  if (!uncaught_.empty()) doubt_uncaught(prefix);
  if (!fallen_.empty()) doubt_fallen(prefix);
  if (unclaimed_) doubt_unclaimed(prefix);
  if (!prefixed_) see_prefixed(prefix);
  if ((known || !tracebacks_.empty()) && take_traceback(line, prefix)) return;
  if (known)
    take_recognized(line, prefix);
  else if (prefix.uncaught && prefix.owner == LineOwner::process)
    take_bare(prefix);
}

// "==> logs/rank_3.log <==" of tail and head, "----------Begin global rank 3 STDERR----------" of
// Composer's launcher.
bool LogReader::take_section(std::string_view line) {
  constexpr std::string_view kBegin = "----------Begin global rank ", kTail = "==> ";
  if (line.starts_with(kBegin)) {
    section_rank_ = rank_at(line.substr(kBegin.size())).value_or(-1);
  } else if (line.starts_with("----------End global rank ")) {
    section_rank_ = -1;
  } else if (line.starts_with(kTail) && line.ends_with(" <==")) {
    const FileRank named =
        rank_in_name(std::string(line.substr(kTail.size(), line.size() - kTail.size() - 4)));
    section_rank_ = named.family == "rank" ? named.rank : -1;
  } else {
    return false;
  }
  if (section_rank_ >= 0) named_.insert(section_rank_);
  return true;
}

void LogReader::keep(LogEvent event, const LogPrefix& prefix, std::string_view text) {
  Kept kept;
  if (event.rank < 0) {
    event.rank = prefix.rank;
    event.local = prefix.local();
    kept.owner = prefix.owner;
    kept.told_twice = prefix.role_rank;
    kept.of_file = prefix.owner == LineOwner::nobody;
  }
  see_running(event, prefix);
  const bool by_place = event.rank >= 0 && event.rank == prefix.rank;
  if (events_.size() >= kKeptMost) return;
  if (kept_[{event.local ? -2 - event.rank : event.rank, event.kind}]++ >= kKeptOfAKind) return;
  text = after_progress(text);
  event.text = cut(text.substr(std::min(text.find_first_not_of(' '), text.size())));
  event.repeated |= text.find(kRepeated) != std::string_view::npos;
  event.file = file_;
  event.line = line_;
  if (const auto lines = lines_of_.find(event.rank); lines != lines_of_.end())
    kept.lines_before = lines->second;
  if (by_place && event.kind == ended && !event.first && !event.of_task && !event.by_agent)
    fallen_.try_emplace(event.rank, events_.size());
  kept.event = std::move(event);
  events_.push_back(std::move(kept));
}

// What ended was a program that the rank had started.
void LogReader::doubt_fallen(const LogPrefix& prefix) {
  const auto found = fallen_.find(prefix.rank);
  if (found == fallen_.end() || !counts_a_step(prefix.rest)) return;
  events_[found->second].handled = true;
  fallen_.erase(found);
}

// A task of Slurm's is a launcher where ranks have larger numbers than all tasks that ended.
bool LogReader::tasks_are_ranks() const {
  const bool labels = std::includes(labelled_.begin(), labelled_.end(), told_.begin(), told_.end());
  return told_.empty() || labels || *told_.rbegin() <= most_task_;
}

void LogReader::find_rank(std::string_view line, std::string_view needle, const LogPrefix& prefix,
                          LogEvent* event) {
  if (const auto rank = rank_before(line, line.find(needle));
      rank && prefix.owner != LineOwner::process) {
    event->rank = *rank;
    told_.insert(*rank);
  } else if (prefix.rank < 0 &&
             (event->kind == timed_out || event->kind == progress || event->kind == absent)) {
    event->rank = group_rank(line, *event).value_or(-1);
    event->in_group = event->group.empty();
  }
}

// glog's lines, and those before PyTorch 2.3, have "[Rank 3]" alone, which counts within the group.
void LogReader::take_group(const LogEvent& event) {
  groups_ |= !event.group.empty() && event.group != "0" && event.description != "default_pg";
}

// What a number of an engine's worker is in the job.
void LogReader::take_assignment(std::string_view line, const LogPrefix& prefix) {
  const size_t at = line.find(" in world size ");
  if (at == std::string_view::npos || !prefix.local()) return;
  const size_t word = line.substr(0, at).rfind("rank ");
  if (word == std::string_view::npos) return;
  set_node_offset(rank_at(line.substr(word + 5)).value_or(-1), prefix.rank);
}

void LogReader::take_recognized(std::string_view line, const LogPrefix& prefix) {
  if (holds_any(line, kTorchrun)) torchrun_ = line_;
  launcher_ |= holds_any(line, kTorchrunsOwn);
  if (holds_any(line, kBegins) || begins_again(line) ||
      (line.find(kThreads) != std::string_view::npos && line_ - torchrun_ < kWarningLines))
    return forget_attempt();
  auto recognized = recognize(line);
  if (!recognized) return take_field(line, prefix);
  const LogPattern& pattern = recognized->pattern;
  LogEvent event = std::move(recognized->event);
  if (event.foreign || (event.kind == world && event.world <= 0)) return;
  take_group(event);
  world_ = std::max(world_, event.world);
  if (event.kind == world) take_assignment(line, prefix);
  if (pattern.writer == LogWriter::kernel) {
    LogPrefix nobody;  // not even the file's
    nobody.owner = LineOwner::job;
    return keep(std::move(event), nobody, prefix.rest);
  }
  if (event.rank < 0) find_rank(line, pattern.needle, prefix, &event);
  if (event.kind == job_ended) step_ends_ = true;
  if (pattern.writer == LogWriter::agent) {
    agent_ = launcher_ = event.by_agent = true;
    event.signal = event.code < 0 ? -event.code : event.code == kExitOfSigterm ? kSigterm : 0;
  }
  if (event.kind == ended && event.signal == kSigterm) event.kind = stopped;
  const bool wrapped = event.kind == ended && event.first && event.signal == 0 && event.code == 0;
  if (wrapped) wrapped_ = kWrappedMost;
  if (event.explains) explain_lost(prefix);
  if (pattern.writer != LogWriter::slurm) return keep(std::move(event), prefix, prefix.rest);
  if (event.ranks.empty() || (event.code == 0 && event.signal == 0)) return;
  if (step_ends_) event.kind = stopped;
  const std::set<int64_t> tasks = std::exchange(event.ranks, {});
  for (const int64_t task : tasks) {
    event.rank = agent_ ? -1 : task;
    event.of_task = true;
    most_task_ = std::max(most_task_, task);
    keep(event, prefix, prefix.rest);
  }
}

// prterun breaks its lines where they get long; mpirun and horovodrun tell line by line who was
// first, and its code.
void LogReader::take_wrapped(std::string_view line) {
  --wrapped_;
  if (events_.empty()) return;
  Kept& last = events_.back();
  // Of an elastic job the name is "host[0]", which counts a host's processes.
  if (const auto name = after(line, kProcessName);
      name.data() != nullptr &&
      name.find_first_not_of("0123456789 \t\r") == std::string_view::npos) {
    last.event.rank = rank_at(name).value_or(-1);
    last.of_file = false;
    last.owner = LineOwner::job;
  }
  const int64_t code = number_after(line, "Exit code:", 0);
  const int64_t number = code == 0  ? number_after(line, "signal ", 0)
                         : code < 0 ? -code
                                    : code - 128;
  if (code != 0) last.event.code = code;
  if (number <= 0) return;
  wrapped_ = 0;
  last.event.signal = number;
  if (number == kSigterm) last.event.kind = stopped;
}

// What says how the lines after it are to be read.
void LogReader::take_field(std::string_view line, const LogPrefix& prefix) {
  if (line.find(kRootCause) != std::string_view::npos) {
    root_cause_ = agent_ = launcher_ = true;
    failure_ = {};
  } else if (line.find(kRestart) != std::string_view::npos) {
    forget_attempt();
  } else if (line.find(kHandling) != std::string_view::npos) {
    forget_handled(prefix);
  } else if (holds_any(line, kPassing)) {
    if (passing_.size() < static_cast<size_t>(kLogRankMost)) passing_[prefix.rank] = line_;
  } else if (const auto forced = after(line, kForced); forced.data() != nullptr) {
    if (killed_.size() < kKilledMost) killed_.insert(leading_number(forced).value_or(-1));
  } else if (prefix.uncaught && tells_of_memory(prefix.rest)) {
    take_last_line(prefix);
  } else if (line.find(kElastic) != std::string_view::npos) {
    agent_ = true;
  } else if (line.find(kClosing) != std::string_view::npos) {
    closes_ = true;
  } else if (const auto spawned = after(line, kSpawned); spawned.data() != nullptr) {
    if (line.find(" terminated with the following error:") != std::string_view::npos)
      spawned_ = rank_at(spawned).value_or(-1);
  } else if (holds_any(line, kStepEnds)) {
    step_ends_ = true;
  } else {
    take_failure(line, prefix);
  }
}

// torchelastic's table, a failure a part; a part ends with its exit code.
void LogReader::take_failure(std::string_view line, const LogPrefix& prefix) {
  if (const auto time = after(line, kTime); time.data() != nullptr) {
    failure_.time = cut(time.substr(0, 40));
  } else if (const auto rank = after(line, kRank); rank.data() != nullptr) {
    failure_.rank = rank_at(rank).value_or(-1);
    table_local_ = number_after(rank, "local_rank: ");
    set_node_offset(failure_.rank, table_local_);
  } else if (const auto code = after(line, kExitCode);
             code.data() != nullptr && failure_.rank >= 0) {
    take_exit_code(code, prefix);
  }
}

// What ends a failure's part of the table.
void LogReader::take_exit_code(std::string_view code, const LogPrefix& prefix) {
  const int64_t number = leading_number(code).value_or(1);
  failure_.code = number;
  failure_.signal = number < 0 ? -number : number == kExitOfSigterm ? kSigterm : 0;
  const bool by_agent =
      failure_.signal == kSigterm ||
      (failure_.signal == kSigkill && killed_.contains(number_after(code, "(pid: ")));
  failure_.kind = by_agent ? stopped : ended;
  failure_.first = root_cause_;
  failure_.by_agent = true;
  if (root_cause_ && failure_.signal == 0 && !closes_) doubt_kills();
  table_rank_ = failure_.rank;
  if (table_local_ >= 0) take_run(failure_, table_local_);
  keep(failure_, prefix, prefix.rest);
  failure_ = {};
}

// Where torchelastic does not say here whom it ended, it may have killed who did not heed SIGTERM
// after the first had failed.
void LogReader::doubt_kills() {
  for (Kept& kept : events_)
    kept.event.forced |= kept.event.kind == ended && kept.event.signal == kSigkill &&
                         !kept.event.first && !kept.event.time.empty();
}

// Then what counts the processes of one node counts the job's ranks: does nothing here tell of more
// than a node has?
bool LogReader::is_of_one_node() const {
  constexpr int64_t kRanksOfANode = 8;
  const bool alone = agents_.empty() || *agents_.rbegin() == 0;
  return alone && node_offsets_.size() < 2 && world_ <= kRanksOfANode &&
         (told_.empty() || *told_.rbegin() < kRanksOfANode);
}

// srun's labels and mpirun's tags are no ranks where they stand before an agent's lines: these are
// of launchers, one a node.
void LogReader::see_agent(std::string_view line, const LogPrefix& prefix) {
  constexpr std::array<std::string_view, 7> kOfAgents = {
      "torch.distributed.elastic.multiprocessing.api:",
      "torch/distributed/elastic/multiprocessing/api.py:",
      "torch.distributed.elastic.agent.",
      "torch/distributed/elastic/agent/",
      "torch/distributed/run.py:",
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
      kRootCause};
  const bool labelled = prefix.owner == LineOwner::label || prefix.owner == LineOwner::job;
  if (labelled && prefix.rank >= 0 && holds_any(line, kOfAgents)) agents_.insert(prefix.rank);
}

// Whose the file is, as far as one rank's.
int64_t LogReader::own_rank() const {
  if (file_rank_ < 0 || told_.size() > 1 || launcher_) return -1;
  return told_.empty() ? file_rank_ : *told_.begin();
}

// Steps that a program counts do not stand before the lines of a traceback.
bool LogReader::numbers_are_ranks() const { return file_rank_ < 0 && !unnumbered_; }

void LogReader::settle(Kept* kept) const {
  LogEvent& event = kept->event;
  const bool labels_are_ranks = 2 * labels_ >= lines_ && agents_.empty();
  if (kept->of_file || (kept->owner == LineOwner::job && !agents_.empty()) ||
      (kept->owner == LineOwner::label && !labels_are_ranks) ||
      (kept->owner == LineOwner::number && !numbers_are_ranks()))
    event.rank = own_rank();
  if (event.in_group && groups_) event.rank = -1;
  if (event.of_spawn) event.local = !is_of_one_node();
  if (role_ranks_ && kept->owner == LineOwner::process && !kept->told_twice) event.local = true;
  if (!event.local || event.rank < 0) return;
  const bool counted = node_offsets_.size() == 1;
  event.local = !counted && is_of_one_node();
  if (counted || event.local)
    event.rank += counted ? *node_offsets_.begin() : 0;
  else
    event.rank = -1;
}

// Did the rank write much after an exception that may have been caught?
bool LogReader::went_on(const Kept& kept) const {
  const auto lines = lines_of_.find(kept.event.rank);
  return kept.event.kind == LogEventKind::exception && !kept.event.certain &&
         lines != lines_of_.end() && lines->second - kept.lines_before > kLinesOfTheEnd;
}

std::vector<LogEvent> LogReader::finish() {
  if (role_ranks_) told_ = std::move(told_twice_);
  std::vector<LogEvent> events;
  for (Kept& kept : events_) {
    if (prefixed_ && kept.by_prefix) kept.event.certain = false;
    if (went_on(kept)) kept.event.own = false;
    settle(&kept);
    if (kept.event.of_task && !tasks_are_ranks()) kept.event.rank = -1;
  }
  own_what_nobody_claims();
  for (Kept& kept : events_)
    if (!kept.handled) events.push_back(std::move(kept.event));
  for (const LogEvent& event : events)
    if (event.rank >= 0 && !event.local && event.kind != LogEventKind::ended &&
        event.kind != stopped)
      ranks_.insert(event.rank);
  ranks_.insert(told_.begin(), told_.end());
  ranks_.insert(named_.begin(), named_.end());
  if (agents_.empty() && (2 * labels_ >= lines_ || labels_ == 0))
    ranks_.insert(labelled_.begin(), labelled_.end());
  if (own_rank() >= 0) ranks_.insert(own_rank());
  return events;
}

}  // namespace lockstep
