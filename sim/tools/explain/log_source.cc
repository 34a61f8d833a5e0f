#include "sim/tools/explain/log_source.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/tools/explain/log_exception.h"
#include "sim/tools/explain/log_lines.h"

namespace lockstep {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t kLineMost = size_t{16} << 10;  // of a longer line this much is read

// Cuts text into lines. A carriage return ends one, too: progress bars write no other end.
class LineCutter {
 public:
  explicit LineCutter(LogReader* reader) : reader_(reader) {}

  void take(std::string_view text) {
    size_t newline = text.find('\n'), carriage = text.find('\r');
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(newline, carriage);
      const std::string_view part = text.substr(at, end - at);
      if (end == std::string_view::npos) return add(part);
      if (held_.empty()) {
        // "\r\n" is one end, not an empty line's as well.
        if (end == carriage || !part.empty() || !after_carriage_)
          reader_->take(part.substr(0, kLineMost));
      } else {
        add(part);
        reader_->take(held_);
        held_.clear();
      }
      at = end + 1;
      after_carriage_ = end == carriage;
      if (end == newline) {
        reader_->next_line();
        newline = text.find('\n', at);
      } else {
        carriage = text.find('\r', at);
      }
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
  bool after_carriage_ = false;  // nothing came after it yet
};

LogOf finished(LogReader* reader) {
  LogOf log;
  log.events = reader->finish();
  log.ranks = reader->ranks();
  log.told_rank = reader->told_rank();
  return log;
}

// Where the next bytes are that somebody wrote: a log that was cut while its writer went on begins
// with a hole of any size.
int64_t after_hole(int fd, int64_t at, int64_t end) {
  const off_t next = ::lseek(fd, at, SEEK_DATA);
  if (next >= at) return next;
  return errno == ENXIO ? end : at;
}

// {"message": "ValueError: x", "extraInfo": ...}, or that text alone, which torchelastic reads as
// well.
std::string message_in(const nlohmann::ordered_json& message) {
  if (message.is_string()) return message.get<std::string>();
  if (!message.is_object()) return "";
  const auto inner = message.find("message");
  return inner != message.end() && inner->is_string() ? inner->get<std::string>() : "";
}

}  // namespace

Expected<LogOf> error_file_of(const std::string& text, const std::string& path, int64_t rank) {
  const auto document =
      parse_foreign_json(text, path, "an error file of torchelastic", JsonLimits{});
  if (!document) return document.errors();
  const auto message = document.value().find("message");
  if (message == document.value().end())
    return file_error(path, "has no message", "an error file of torchelastic");
  LogEvent event;
  const std::string said = message_in(*message);
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
    case ExceptionOrigin::interrupt:
      event.kind = LogEventKind::job_ended;
      event.ordered = true;
      break;
    case ExceptionOrigin::launcher:
      return LogOf{};
    case ExceptionOrigin::unclear:
      event.kind = LogEventKind::exception;
      event.certain = false;
      break;
  }
  return LogOf{{std::move(event)}, {}, -1};
}

LogOf log_of(std::string_view text, const std::string& path, int64_t rank) {
  LogReader reader(path, rank);
  LineCutter lines(&reader);
  for (; !text.empty(); text.remove_prefix(std::min(kChunk, text.size()))) {
    const std::string_view piece = text.substr(0, kChunk);
    if (piece.find_first_not_of('\0') != std::string_view::npos) lines.take(piece);
  }
  lines.finish();
  return finished(&reader);
}

Expected<LogOf> read_log(const std::string& path, int64_t rank) {
  auto file = open_foreign_file(path, kLogBytesMost);
  if (!file) return file.errors();
  LogReader reader(path, rank);
  LineCutter lines(&reader);
  std::string chunk(static_cast<size_t>(std::min<int64_t>(kChunk, file.value().bytes)), '\0');
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
  return finished(&reader);
}

void doubt_spawned(std::vector<LogEvent>* events) {
  std::set<std::string> files;
  for (const LogEvent& event : *events)
    if (event.of_spawn) files.insert(event.file);
  for (LogEvent& event : *events)
    if (event.of_spawn && files.size() > 1) event.rank = -1;
}

void NodeLogs::take(const FileRank& named, LogOf log) {
  Node& node = nodes_[named.family];
  if (log.told_rank >= 0) node.offsets.insert(log.told_rank - named.rank);
  node.logs.emplace_back(named.rank, std::move(log));
}

std::vector<LogOf> NodeLogs::finish() {
  std::vector<LogOf> all;
  for (auto& [family, node] : nodes_) {
    if (nodes_.size() == 1 && node.offsets.empty()) node.offsets.insert(0);
    const bool known = node.offsets.size() == 1 && *node.offsets.begin() >= 0;
    for (auto& [rank, log] : node.logs) {
      if (log.told_rank < 0) renumber(rank, known ? rank + *node.offsets.begin() : -1, &log);
      all.push_back(std::move(log));
    }
  }
  return all;
}

void NodeLogs::renumber(int64_t local, int64_t rank, LogOf* log) {
  for (LogEvent& event : log->events)
    if (event.rank == local) event.rank = rank;
  if (log->ranks.erase(local) > 0 && rank >= 0) log->ranks.insert(rank);
}

}  // namespace lockstep
