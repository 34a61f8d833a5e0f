#include "sim/tools/explain/sources.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <string_view>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/tools/explain/archive.h"
#include "sim/tools/explain/log_exception.h"
#include "sim/tools/explain/log_lines.h"
#include "sim/tools/explain/source_kind.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 100'000;
constexpr int kDeepest = 8;  // folders in folders
constexpr int64_t kLogBytesMost = int64_t{1} << 40;
constexpr int64_t kErrorFileMost = int64_t{16} << 20;
constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t kLineMost = size_t{16} << 10;  // of a longer line this much is read
constexpr size_t kEventsMost = 2'000'000;

Expected<std::string> head_of(const std::string& path) {
  auto file = open_foreign_file(path, kLogBytesMost);
  if (!file) return file.errors();
  std::string head(static_cast<size_t>(std::min<int64_t>(file.value().bytes, kKindBytes)), '\0');
  if (!head.empty() && !read_at(file.value().fd.get(), 0, head.data(), head.size()))
    return file_error(path, "cannot be read");
  return head;
}

std::optional<int64_t> number_at_end(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  const auto number = number_in<int64_t>(text.substr(begin));
  return number && *number < int64_t{100'000} ? number : std::nullopt;
}

// "rank3", "rank_3", "rank-3", "RANK=3" anywhere in the name.
std::optional<int64_t> rank_word(const std::string& name) {
  for (const char* word : {"rank", "Rank", "RANK"}) {
    const size_t at = name.find(word);
    if (at == std::string::npos) continue;
    size_t begin = at + 4;
    if (begin < name.size() && std::string_view("_-=.").find(name[begin]) != std::string_view::npos)
      ++begin;
    size_t end = begin;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    const auto rank = number_in<int64_t>(std::string_view(name).substr(begin, end - begin));
    if (rank && *rank < 100'000) return rank;
  }
  return std::nullopt;
}

struct NamedLog {
  std::string family;  // what files of one job's ranks have in common
  int64_t rank = -1;
};

// "log.3", "stderr_3.txt", "3.err", torchrun's "attempt_0/3/stderr.log".
NamedLog named_log(const fs::path& path) {
  const std::string name = path.filename().string();
  if (const auto rank = rank_word(name)) return {"rank", *rank};
  const std::string folder = path.parent_path().filename().string();
  if (name.starts_with("std") || name.starts_with("error."))
    if (const auto rank = number_in<int64_t>(folder); rank && *rank >= 0 && *rank < 100'000)
      return {path.parent_path().parent_path().string() + "/", *rank};
  if (name.starts_with("slurm-")) return {};
  std::string stem = name;
  if (const auto last = number_at_end(stem))
    return {
        path.parent_path().string() + "/" + stem.substr(0, stem.find_last_not_of("0123456789") + 1),
        *last};
  stem = path.stem().string();
  if (const auto last = number_at_end(stem))
    return {path.parent_path().string() + "/" +
                stem.substr(0, stem.find_last_not_of("0123456789") + 1) + path.extension().string(),
            *last};
  return {};
}

// A number is a rank where its word says so, or where files that differ in nothing else count from
// 0 without many gaps: not the number of a job, nor a date.
std::map<std::string, int64_t> ranks_of_logs(const std::vector<std::string>& logs) {
  std::map<std::string, std::set<int64_t>> families;
  for (const std::string& log : logs)
    if (const NamedLog named = named_log(log); named.rank >= 0)
      families[named.family].insert(named.rank);
  std::map<std::string, int64_t> ranks;
  for (const std::string& log : logs) {
    const NamedLog named = named_log(log);
    if (named.rank < 0) continue;
    const std::set<int64_t>& all = families[named.family];
    const bool counted = all.size() > 1 && *all.begin() <= 1 &&
                         *all.rbegin() <= 2 * static_cast<int64_t>(all.size()) + 8;
    if (named.family == "rank" || named.family.ends_with('/') || counted) ranks[log] = named.rank;
  }
  return ranks;
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

// torchelastic's error.json: the exception that its process ended by.
Expected<std::vector<LogEvent>> error_of(const std::string& text, const std::string& path,
                                         int64_t rank) {
  const auto document =
      parse_foreign_json(text, path, "an error file of torchelastic", JsonLimits{});
  if (!document) return document.errors();
  const auto message = document.value().find("message");
  if (message == document.value().end())
    return file_error(path, "has no message", "an error file of torchelastic");
  LogEvent event;
  const auto inner = message->is_object() ? message->find("message") : message;
  const std::string said =
      inner != message->end() && inner->is_string() ? inner->get<std::string>() : "";
  event.text = said.substr(0, 240);
  event.rank = rank;
  event.file = path;
  event.line = 1;
  event.certain = true;
  // "ValueError: x", as @record writes it.
  switch (is_exception(said) ? origin_of_exception(said, false) : ExceptionOrigin::unclear) {
    case ExceptionOrigin::own:
      event.kind = LogEventKind::exception;
      event.own = true;
      break;
    case ExceptionOrigin::communication:
      event.kind = LogEventKind::lost_peer;
      break;
    case ExceptionOrigin::stop:
      event.kind = LogEventKind::stopped;
      break;
    case ExceptionOrigin::launcher:
      return std::vector<LogEvent>{};
    case ExceptionOrigin::unclear:
      event.kind = LogEventKind::exception;
      event.certain = false;
      break;
  }
  return std::vector<LogEvent>{std::move(event)};
}

// Cuts text into lines. A carriage return ends one, too: progress bars write no other end.
class LineCutter {
 public:
  explicit LineCutter(LogReader* reader) : reader_(reader) {}

  void take(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find_first_of("\r\n");
      const std::string_view part = text.substr(0, end);
      if (end == std::string_view::npos) return add(part);
      if (held_.empty()) {
        reader_->take(part.substr(0, kLineMost));
      } else {
        add(part);
        reader_->take(held_);
        held_.clear();
      }
      if (text[end] == '\n') reader_->next_line();
      text.remove_prefix(end + 1);
    }
  }
  void finish() {
    if (!held_.empty()) reader_->take(held_);
  }

 private:
  void add(std::string_view part) {
    held_.append(part.substr(0, kLineMost - std::min(kLineMost, held_.size())));
  }

  LogReader* reader_;
  std::string held_;
};

std::vector<LogEvent> log_of(std::string_view text, const std::string& path, int64_t rank,
                             std::set<int64_t>* logged) {
  LogReader reader(path, rank);
  LineCutter lines(&reader);
  for (; !text.empty(); text.remove_prefix(std::min(kChunk, text.size()))) {
    const std::string_view piece = text.substr(0, kChunk);
    if (piece.find_first_not_of('\0') != std::string_view::npos) lines.take(piece);
  }
  lines.finish();
  auto events = reader.finish();
  logged->insert(reader.ranks().begin(), reader.ranks().end());
  return events;
}

class JobReader {
 public:
  Expected<JobEvidence> read(const std::vector<std::string>& paths) {
    named_.insert(paths.begin(), paths.end());
    auto files = files_of(paths);
    if (!files) return files.errors();
    sort(last_attempts(unpacked(files.value())));
    const auto ranks = ranks_of_logs(logs_);
    for (const std::string& log : logs_) take_log(log, ranks);
    for (const std::string& file : error_files_) take_error_file(file);
    if (!errors_.empty()) return errors_;
    if (job_.dumps.empty() && logs_.empty() && error_files_.empty())
      return file_error(paths.empty() ? "." : paths.front(), "no file there",
                        "flight recorder dumps or text logs of a PyTorch job");
    std::sort(job_.dumps.begin(), job_.dumps.end(),
              [](const FlightDump& a, const FlightDump& b) { return a.rank < b.rank; });
    job_.logs = static_cast<int64_t>(logs_.size() + error_files_.size());
    return std::move(job_);
  }

 private:
  // In place of archives that were named what is in them, by names below the archive's.
  std::vector<std::string> unpacked(const std::vector<std::string>& files) {
    std::vector<std::string> all;
    for (const std::string& file : files) {
      const auto head = named_.contains(file) ? ::lockstep::head_of(file) : std::string();
      if (!head || !is_archive(head.value())) {
        all.push_back(file);
        continue;
      }
      auto archived = read_archive(file, {.bytes = archived_left_});
      if (!archived) {
        errors_.insert(errors_.end(), archived.errors().begin(), archived.errors().end());
        continue;
      }
      for (ArchivedFile& one : archived.value()) {
        all.push_back(file + "/" + one.name);
        archived_left_ -= static_cast<int64_t>(one.bytes.size());
        archived_.emplace(all.back(), std::move(one.bytes));
      }
    }
    std::sort(all.begin(), all.end());
    return all;
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
      switch (kind_of(file, head.value())) {
        case SourceKind::dump:
          take_dump(file);
          break;
        case SourceKind::error_file:
          error_files_.push_back(file);
          break;
        case SourceKind::log:
          logs_.push_back(file);
          break;
        case SourceKind::other:
          take_other(file);
          break;
      }
    }
  }

  void take_other(const std::string& file) {
    if (named_.contains(file))
      errors_.push_back(file_error(file, "is neither a dump nor a text log",
                                   "flight recorder dumps or text logs of a PyTorch job"));
    else
      job_.ignored.push_back(file);
  }

  void take_dump(const std::string& file) {
    const std::string* bytes = archived(file);
    auto dump = bytes ? flight_dump_of(*bytes, file, &lists_) : read_flight_dump(file, &lists_);
    if (!dump) {
      errors_.insert(errors_.end(), dump.errors().begin(), dump.errors().end());
      return;
    }
    const auto [other, fresh] = file_of_.emplace(dump.value().rank, file);
    if (!fresh)
      errors_.push_back(file_error(file, fmt::format("a second dump of rank {}, beside {}",
                                                     dump.value().rank, other->second)));
    job_.dumps.push_back(std::move(dump.value()));
  }

  void take_log(const std::string& log, const std::map<std::string, int64_t>& ranks) {
    const auto found = ranks.find(log);
    const int64_t rank = found == ranks.end() ? -1 : found->second;
    if (const std::string* bytes = archived(log))
      take_events(log_of(*bytes, log, rank, &job_.logged));
    else
      take_events(read_log(log, rank, &job_.logged));
  }

  void take_error_file(const std::string& file) {
    const NamedLog named = named_log(file);
    if (const std::string* bytes = archived(file))
      return take_events(error_of(*bytes, file, named.rank));
    const auto text = read_foreign_file(file, kErrorFileMost);
    take_events(text ? error_of(text.value(), file, named.rank) : text.errors());
  }

  void take_events(Expected<std::vector<LogEvent>> events) {
    if (!events) {
      errors_.insert(errors_.end(), events.errors().begin(), events.errors().end());
      return;
    }
    for (LogEvent& event : events.value())
      if (job_.events.size() < kEventsMost) job_.events.push_back(std::move(event));
  }

  JobEvidence job_;
  std::set<std::string> named_;
  std::map<std::string, std::string> archived_;  // by name: what archives held
  int64_t archived_left_ = ArchiveLimits{}.bytes;
  RankLists lists_;
  std::map<int64_t, std::string> file_of_;
  std::vector<std::string> logs_, error_files_;
  InputErrors errors_;
};

// A checkpoint of PyTorch is a zip file of pickles, too.
bool archive_is_evidence(const std::string& path) {
  const auto archived = read_archive(path);
  if (!archived) return false;
  bool found = false;
  for (const auto& [name, bytes] : archived.value()) {
    if (name.ends_with("data.pkl")) return false;
    const SourceKind kind = kind_of(name, std::string_view(bytes).substr(0, kKindBytes));
    std::set<int64_t> logged;
    found = found || kind == SourceKind::dump || kind == SourceKind::error_file ||
            (kind == SourceKind::log && !log_of(bytes, name, -1, &logged).empty());
  }
  return found;
}

bool file_is_evidence(const std::string& path) {
  const auto head = head_of(path);
  if (!head) return false;
  switch (kind_of(path, head.value())) {
    case SourceKind::dump:
    case SourceKind::error_file:
      return true;
    case SourceKind::other:
      return false;
    case SourceKind::log:
      break;
  }
  std::set<int64_t> logged;
  const auto events = read_log(path, -1, &logged);
  return events && !events.value().empty();
}

// Where the next bytes are that somebody wrote: a log that was cut while its writer went on begins
// with a hole of any size.
int64_t after_hole(int fd, int64_t at, int64_t end) {
  const off_t next = ::lseek(fd, at, SEEK_DATA);
  if (next >= at) return next;
  return errno == ENXIO ? end : at;
}

}  // namespace

Expected<std::vector<LogEvent>> read_log(const std::string& path, int64_t rank,
                                         std::set<int64_t>* logged) {
  auto file = open_foreign_file(path, kLogBytesMost);
  if (!file) return file.errors();
  LogReader reader(path, rank);
  LineCutter lines(&reader);
  std::string chunk(kChunk, '\0');
  for (int64_t at = 0; at < file.value().bytes;) {
    const size_t bytes = static_cast<size_t>(std::min<int64_t>(kChunk, file.value().bytes - at));
    if (!read_at(file.value().fd.get(), at, chunk.data(), bytes))
      return file_error(path, "cannot be read");
    const std::string_view read = std::string_view(chunk).substr(0, bytes);
    at += static_cast<int64_t>(bytes);
    if (read.find_first_not_of('\0') == std::string_view::npos)
      at = after_hole(file.value().fd.get(), at, file.value().bytes);
    else
      lines.take(read);
  }
  lines.finish();
  auto events = reader.finish();
  logged->insert(reader.ranks().begin(), reader.ranks().end());
  return events;
}

Expected<JobEvidence> read_job(const std::vector<std::string>& paths) {
  return JobReader().read(paths);
}

bool is_job_evidence(const std::string& path) {
  constexpr size_t kLookedAt = 1000;
  const auto files = files_of({path});
  if (!files) return false;
  std::error_code error;
  if (const auto head = head_of(path); !fs::is_directory(path, error) && head)
    if (is_archive(head.value())) return archive_is_evidence(path);
  bool found = false;
  for (size_t at = 0; at < std::min(files.value().size(), kLookedAt); ++at) {
    const std::string name = fs::path(files.value()[at]).filename().string();
    if (name == "plan.json" || name == "recording.json") return false;
    found = found || file_is_evidence(files.value()[at]);
  }
  return found;
}

}  // namespace lockstep
