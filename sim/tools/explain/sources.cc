#include "sim/tools/explain/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/tools/explain/archive.h"
#include "sim/tools/explain/file_rank.h"
#include "sim/tools/explain/flight_calls.h"
#include "sim/tools/explain/log_source.h"
#include "sim/tools/explain/namesakes.h"
#include "sim/tools/explain/source_kind.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 100'000;
constexpr int kDeepest = 8;  // folders in folders
constexpr int64_t kErrorFileMost = int64_t{16} << 20;
constexpr size_t kEventsMost = 2'000'000;
constexpr const char* kAllowed =
    "flight recorder dumps, traces of torch.profiler or text logs of a PyTorch job";

Expected<std::string> head_of(const std::string& path) {
  auto file = open_foreign_file(path, kLogBytesMost);
  if (!file) return file.errors();
  std::string head(static_cast<size_t>(std::min<int64_t>(file.value().bytes, kKindBytes)), '\0');
  if (!head.empty() && !read_at(file.value().fd.get(), 0, head.data(), head.size()))
    return file_error(path, "cannot be read");
  return head;
}

Expected<std::vector<std::string>> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    fs::recursive_directory_iterator entry(path, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      if (entry.depth() >= kDeepest) entry.disable_recursion_pending();
      if (!entry->is_directory(error)) files.push_back(entry->path().string());
      if (files.size() > kMostFiles)
        return file_error(path, fmt::format("more than {} files", kMostFiles));
    }
    if (error) return file_error(path, "cannot be read: " + error.message());
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// ".../attempt_1/..." -> what stands before it, and 1.
std::optional<std::pair<std::string, int64_t>> attempt_of(const std::string& path) {
  const size_t at = path.find("/attempt_");
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + 9;
  const size_t end = path.find('/', begin);
  if (end == std::string::npos) return std::nullopt;
  const auto number = number_in<int64_t>(std::string_view(path).substr(begin, end - begin));
  if (!number) return std::nullopt;
  return std::pair(path.substr(0, at), *number);
}

std::vector<std::string> last_attempts(std::vector<std::string> files) {
  std::map<std::string, int64_t> last;
  for (const std::string& file : files)
    if (const auto attempt = attempt_of(file)) {
      const auto [at, fresh] = last.emplace(*attempt);
      at->second = std::max(at->second, attempt->second);
    }
  std::erase_if(files, [&](const std::string& file) {
    const auto attempt = attempt_of(file);
    return attempt && attempt->second < last[attempt->first];
  });
  return files;
}

class JobReader {
 public:
  Expected<JobEvidence> read(const std::vector<std::string>& paths) {
    named_.insert(paths.begin(), paths.end());
    auto files = files_of(paths);
    if (!files) return files.errors();
    sort(last_attempts(unpacked(files.value())));
    take_damaged();
    const auto ranks = ranks_of_logs(logs_);
    for (const std::string& log : logs_) take_log(log, ranks);
    for (const std::string& file : error_files_) take_error_file(file);
    for (LogOf& log : nodes_.finish()) take_log(std::move(log));
    take_last_job();
    doubt_spawned(&job_.events);
    check_traces();
    if (!errors_.empty()) return errors_;
    if (job_.dumps.empty() && job_.traces.empty() && job_.chakra.empty() && logs_.empty() &&
        error_files_.empty())
      return file_error(paths.empty() ? "." : paths.front(), "no file there", kAllowed);
    std::sort(job_.dumps.begin(), job_.dumps.end(),
              [](const FlightDump& a, const FlightDump& b) { return a.rank < b.rank; });
    job_.logs = static_cast<int64_t>(logs_.size() + error_files_.size());
    tell_namesakes_apart(&job_);
    share_starts(&job_.dumps);
    return std::move(job_);
  }

 private:
  // In place of archives that were named what is in them, by names below the archive's; in place of
  // a file that gzip packed itself.
  std::vector<std::string> unpacked(const std::vector<std::string>& files) {
    std::vector<std::string> all;
    for (const std::string& file : files) {
      const bool looked_at = named_.contains(file) || file.ends_with(".gz");
      const auto head = looked_at ? ::lockstep::head_of(file) : std::string();
      const bool packed = head && is_archive(head.value());
      if (packed && is_kineto_trace(file)) packed_traces_.insert(file);
      if (!packed || packed_traces_.contains(file))
        all.push_back(file);
      else
        unpack(file, &all);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  void unpack(const std::string& file, std::vector<std::string>* all) {
    auto archived = read_archive(file, {.bytes = archived_left_});
    const bool named = named_.contains(file);
    if (!archived && named)
      errors_.insert(errors_.end(), archived.errors().begin(), archived.errors().end());
    if (!archived && !named) job_.ignored.push_back(file);
    if (!archived) return;
    const bool alone = archived.value().size() == 1 && archived.value().front().alone;
    if (!named && !alone) {
      job_.ignored.push_back(file);
      return;
    }
    for (ArchivedFile& one : archived.value()) {
      std::string name =
          alone ? (fs::path(file).parent_path() / one.name).string() : file + "/" + one.name;
      if (std::error_code error; alone && fs::exists(name, error)) name = file + "/" + one.name;
      archived_left_ -= static_cast<int64_t>(one.bytes.size());
      if (named && alone) named_.insert(name);
      all->push_back(name);
      archived_.emplace(std::move(name), std::move(one.bytes));
    }
  }

  const std::string* archived(const std::string& file) const {
    const auto found = archived_.find(file);
    return found == archived_.end() ? nullptr : &found->second;
  }

  Expected<std::string> head_of(const std::string& file) const {
    if (const std::string* bytes = archived(file)) return bytes->substr(0, kKindBytes);
    return ::lockstep::head_of(file);
  }

  void sort(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      if (errors_.size() >= kMostErrors) return;
      const auto head = head_of(file);
      if (!head) {
        errors_.insert(errors_.end(), head.errors().begin(), head.errors().end());
        continue;
      }
      const bool packed = packed_traces_.contains(file);
      switch (packed ? SourceKind::trace : kind_of(file, head.value())) {
        case SourceKind::dump:
          take_dump(file);
          break;
        case SourceKind::error_file:
          error_files_.push_back(file);
          break;
        case SourceKind::log:
          logs_.push_back(file);
          break;
        case SourceKind::trace:
          take_trace(file);
          break;
        case SourceKind::chakra:
          take_chakra(file);
          break;
        case SourceKind::other:
          take_other(file);
          break;
      }
    }
  }

  // Of a rank whose profiler wrote several, one each time that its schedule came round, the last.
  void take_trace(const std::string& file) {
    const std::string* bytes = archived(file);
    auto trace = bytes ? kineto_trace_of(*bytes, file) : read_kineto_trace(file);
    if (!trace) {
      InputErrors& into = named_.contains(file) ? errors_ : damaged_;
      into.insert(into.end(), trace.errors().begin(), trace.errors().end());
      return;
    }
    if (trace.value().rank < 0) trace.value().rank = rank_in_name(file).rank;
    if (trace.value().rank < 0) traces_of_nobody_.push_back(file);
    const auto same =
        std::find_if(job_.traces.begin(), job_.traces.end(),
                     [&](const KinetoTrace& other) { return other.rank == trace.value().rank; });
    if (same == job_.traces.end())
      job_.traces.push_back(std::move(trace.value()));
    else if (same->begin_us < trace.value().begin_us)
      *same = std::move(trace.value());
  }

  void take_chakra(const std::string& file) {
    const std::string* bytes = archived(file);
    auto trace = bytes ? chakra_trace_of(*bytes, file) : read_chakra_trace(file);
    InputErrors& into = named_.contains(file) ? errors_ : damaged_;
    if (trace)
      job_.chakra.push_back(std::move(trace.value()));
    else
      into.insert(into.end(), trace.errors().begin(), trace.errors().end());
  }

  // One that does not say whose it is can only be alone.
  void check_traces() {
    if (traces_of_nobody_.size() == 1 && job_.traces.size() == 1 &&
        job_.traces.front().world_size <= 1) {
      job_.traces.front().rank = 0;
      return;
    }
    for (const std::string& file : traces_of_nobody_)
      if (errors_.size() < kMostErrors)
        errors_.push_back(file_error(
            file, "does not say which rank's it is, of several",
            "a file of each rank, with the rank in distributedInfo or in its name (rank_3.json)"));
    check_world_sizes();
    std::sort(job_.traces.begin(), job_.traces.end(),
              [](const KinetoTrace& a, const KinetoTrace& b) { return a.rank < b.rank; });
  }

  void check_world_sizes() {
    const KinetoTrace* first = nullptr;
    for (const KinetoTrace& trace : job_.traces) {
      if (trace.world_size == 0) continue;
      if (first == nullptr) first = &trace;
      if (trace.world_size == first->world_size) continue;
      errors_.push_back(file_error(trace.file,
                                   fmt::format("is of a job of {} ranks, and {} of one of {}",
                                               trace.world_size, first->file, first->world_size),
                                   "traces of one job"));
      return;
    }
  }

  void take_other(const std::string& file) {
    if (named_.contains(file))
      errors_.push_back(file_error(file, "is neither a dump, a trace nor a text log", kAllowed));
    else
      job_.ignored.push_back(file);
  }

  void take_dump(const std::string& file) {
    const std::string* bytes = archived(file);
    auto dump = bytes ? flight_dump_of(*bytes, file, &lists_) : read_flight_dump(file, &lists_);
    if (!dump) {
      InputErrors& into = named_.contains(file) ? errors_ : damaged_;
      into.insert(into.end(), dump.errors().begin(), dump.errors().end());
      return;
    }
    const auto [other, fresh] = dump_of_.emplace(dump.value().rank, job_.dumps.size());
    if (fresh)
      job_.dumps.push_back(std::move(dump.value()));
    else if (!say_the_same(dump.value(), job_.dumps[other->second]))
      errors_.push_back(file_error(file,
                                   fmt::format("a second dump of rank {}, which differs from {}",
                                               dump.value().rank, job_.dumps[other->second].file),
                                   "one dump of each rank, all taken at the same time"));
  }

  // As a pickle and as JSON, or copied.
  static bool say_the_same(const FlightDump& a, const FlightDump& b) {
    return a.entries == b.entries && a.status == b.status && a.groups == b.groups;
  }

  // A rank that was ended while it wrote its dump left half of one: those of others count.
  void take_damaged() {
    if (job_.dumps.empty() && job_.traces.empty() && job_.chakra.empty())
      errors_.insert(errors_.end(), damaged_.begin(), damaged_.end());
    for (const InputError& error : damaged_)
      job_.damaged.push_back(fs::path(error.file).filename().string() + ": " + error.message);
  }

  void take_log(const std::string& log, const std::map<std::string, FileRank>& ranks) {
    const auto found = ranks.find(log);
    const int64_t rank = found == ranks.end() ? -1 : found->second.rank;
    const std::string* bytes = archived(log);
    auto read = bytes ? log_of(*bytes, log, rank) : read_log(log, rank);
    if (!read) {
      errors_.insert(errors_.end(), read.errors().begin(), read.errors().end());
      return;
    }
    if (found != ranks.end() && found->second.of_node)
      nodes_.take(found->second, std::move(read.value()));
    else if (const int64_t job = slurm_job_of(log); job >= 0)
      of_jobs_.emplace(job, std::pair(log, std::move(read.value())));
    else
      take_log(std::move(read.value()));
  }

  // Who tells of ranks among those of which a later job of Slurm's tells is of a job before that.
  void take_last_job() {
    constexpr auto kNone = std::numeric_limits<int64_t>::max();
    std::pair<int64_t, int64_t> later(kNone, -1), all = later;  // the first rank, and the last
    int64_t job = -1;
    for (auto at = of_jobs_.rbegin(); at != of_jobs_.rend(); ++at) {
      auto& [file, read] = at->second;
      if (std::exchange(job, at->first) != at->first) later = all;
      const int64_t first = read.ranks.empty() ? kNone : *read.ranks.begin();
      const int64_t last = read.ranks.empty() ? -1 : *read.ranks.rbegin();
      all = {std::min(all.first, first), std::max(all.second, last)};
      if (first <= later.second && last >= later.first)
        job_.earlier.push_back(fs::path(file).filename().string());
      else
        take_log(std::move(read));
    }
  }

  void take_log(LogOf log) {
    job_.logged.insert(log.ranks.begin(), log.ranks.end());
    for (LogEvent& event : log.events)
      if (job_.events.size() < kEventsMost) job_.events.push_back(std::move(event));
  }

  void take_error_file(const std::string& file) {
    const FileRank named = rank_in_name(file);
    const std::string* bytes = archived(file);
    const auto text =
        bytes ? Expected<std::string>(*bytes) : read_foreign_file(file, kErrorFileMost);
    auto read = text ? error_file_of(text.value(), file, named.rank) : text.errors();
    if (!read)
      errors_.insert(errors_.end(), read.errors().begin(), read.errors().end());
    else if (named.of_node)
      nodes_.take(named, std::move(read.value()));
    else
      take_log(std::move(read.value()));
  }

  JobEvidence job_;
  std::set<std::string> named_;
  std::map<std::string, std::string> archived_;  // by name: what archives held
  int64_t archived_left_ = ArchiveLimits{}.bytes;
  RankLists lists_;
  std::map<int64_t, size_t> dump_of_;  // by rank
  std::vector<std::string> logs_, error_files_, traces_of_nobody_;
  std::set<std::string> packed_traces_;  // by gzip: read as streams, however much they unpack to
  NodeLogs nodes_;
  std::multimap<int64_t, std::pair<std::string, LogOf>> of_jobs_;  // by Slurm's number
  InputErrors errors_;
  InputErrors damaged_;  // dumps and traces that nobody named
};

// A checkpoint of PyTorch is a zip file of pickles, too.
bool archive_is_evidence(const std::string& path) {
  const auto archived = read_archive(path);
  if (!archived) return false;
  bool found = false;
  for (const auto& [name, bytes, alone] : archived.value()) {
    if (name.ends_with("data.pkl")) return false;
    const SourceKind kind = kind_of(name, std::string_view(bytes).substr(0, kKindBytes));
    found = found || kind == SourceKind::dump || kind == SourceKind::error_file ||
            kind == SourceKind::trace || kind == SourceKind::chakra ||
            (kind == SourceKind::log && !log_of(bytes, name, -1).events.empty());
  }
  return found;
}

bool file_is_evidence(const std::string& path) {
  const auto head = head_of(path);
  if (!head) return false;
  if (is_archive(head.value()) && is_kineto_trace(path)) return true;
  switch (kind_of(path, head.value())) {
    case SourceKind::dump:
    case SourceKind::error_file:
    case SourceKind::trace:
    case SourceKind::chakra:
      return true;
    case SourceKind::other:
      return false;
    case SourceKind::log:
      break;
  }
  const auto log = read_log(path, -1);
  return log && !log.value().events.empty();
}

}  // namespace

Expected<JobEvidence> read_job(const std::vector<std::string>& paths) {
  return JobReader().read(paths);
}

bool is_job_evidence(const std::string& path) {
  constexpr size_t kLookedAt = 1000;
  const auto files = files_of({path});
  if (!files) return false;
  std::error_code error;
  if (const auto head = head_of(path); !fs::is_directory(path, error) && head)
    if (is_archive(head.value())) return is_kineto_trace(path) || archive_is_evidence(path);
  bool found = false;
  for (size_t at = 0; at < std::min(files.value().size(), kLookedAt); ++at) {
    const std::string name = fs::path(files.value()[at]).filename().string();
    if (name == "plan.json" || name == "recording.json") return false;
    found = found || file_is_evidence(files.value()[at]);
  }
  return found;
}

}  // namespace lockstep
