#include "sim/tools/collective/ranks.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "scenarios/base/file.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/executor.h"
#include "sim/launch/process_run.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void append(const std::string& path, const Json& line) {
  std::ofstream file(path, std::ios::app);
  file << line.dump(-1, ' ', true, Json::error_handler_t::replace) << "\n" << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
}

constexpr size_t kPiece = size_t{1} << 20;  // of a rank's file at a time

// Up to a whole piece; fewer bytes at the end of the file, or where reading fails.
size_t read_piece(int fd, std::string* piece) {
  size_t read = 0;
  while (read < piece->size()) {
    const ssize_t got = ::read(fd, piece->data() + read, piece->size() - read);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    read += static_cast<size_t>(got);
  }
  return read;
}

// False, or Json::exception thrown, where it is no line of ours.
bool take(const Json& line, RankFile* result) {
  if (line.contains("row")) {
    RankRow row;
    get_exact(line.at("row"), row.row);
    get_exact(line.at("begin_ns"), row.begin_ns);
    get_exact(line.at("end_ns"), row.end_ns);
    get_exact(line.at("wrong"), row.wrong);
    get_exact(line.at("results"), row.results);
    if (row.begin_ns.size() != row.end_ns.size()) return false;
    result->rows.push_back(std::move(row));
  }
  if (line.contains("control_wrong"))
    result->control_wrong = whole_number(line.at("control_wrong"));
  if (line.contains("error")) result->error = line.at("error");
  return true;
}

// False after the first line that is not ours.
bool take_lines(std::string_view text, RankFile* result) {
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const Json json = json_or_discarded(text.substr(begin, end - begin));
    if (json.is_discarded()) return false;
    try {
      if (!take(json, result)) return false;
    } catch (const Json::exception&) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string rank_file_path(const std::string& run_dir, int64_t rank) {
  return fmt::format("{}/rank-{}.collective", run_dir, rank);
}

void append_row(const std::string& path, const RankRow& row) {
  append(path, {{"row", row.row},
                {"begin_ns", row.begin_ns},
                {"end_ns", row.end_ns},
                {"wrong", row.wrong},
                {"results", row.results}});
}

void append_control(const std::string& path, int64_t wrong) {
  append(path, {{"control_wrong", wrong}});
}

void append_error(const std::string& path, const std::string& error) {
  append(path, {{"error", error}});
}

RankFile read_rank_file(const std::string& path) {
  RankFile result;
  const auto file = open_foreign_file(path, kResultBytesMost);
  if (!file) return result;
  // Not the whole file at once, which may be long and no rank's: it ends with the first line that
  // is none, and before a NUL, which no JSON holds: room that nobody wrote to.
  std::string lines, piece(kPiece, '\0');
  for (bool more = true; more;) {
    const size_t read = read_piece(file.value().fd.get(), &piece);
    const std::string_view text =
        std::string_view(piece).substr(0, std::min(piece.find('\0'), read));
    const bool whole = text.size() == read;
    more = whole && read == kPiece;
    const size_t end = whole && !more ? read : text.rfind('\n') + 1;
    lines += text.substr(0, end);
    if (end == 0 && more) {
      lines += text;
      continue;
    }
    if (!take_lines(lines, &result)) break;
    lines = text.substr(end);
  }
  return result;
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait{50};
constexpr milliseconds kTermGrace{500};    // from SIGTERM to SIGKILL
constexpr milliseconds kNoticeGrace{500};  // for the others to notice a failure by themselves
constexpr milliseconds kSilence{60'000};   // beyond the time-out of a collective

class Ranks {
 public:
  Ranks(const CollectiveSpec& spec, const std::string& run_dir, const std::string& program,
        const std::function<void(int64_t)>& progress);
  CollectiveEnd run();

 private:
  struct Rank {
    std::shared_ptr<Worker> worker;
    bool noted = false;
    bool stopped = false;  // by a signal, when the first failure was noticed
  };
  void on_message(int64_t rank, const Channel::Message& message);
  bool over() const;
  void note_ends(Deadline now);
  void note_failure(Deadline now);
  void end_all(milliseconds grace);
  std::string problem() const;

  const std::string run_dir_;
  const milliseconds silence_;
  const std::function<void(int64_t)>& progress_;
  Signals signals_;
  EventLoop loop_;
  Workers workers_;
  RunStore store_;
  std::vector<Rank> ranks_;
  std::vector<ProcessEnd> ends_;
  Deadline heard_ = Clock::now();
  Deadline first_bad_ = kNoDeadline;
  int interrupted_by_ = 0;
};

Ranks::Ranks(const CollectiveSpec& spec, const std::string& run_dir, const std::string& program,
             const std::function<void(int64_t)>& progress)
    : run_dir_(run_dir),
      silence_(milliseconds(spec.timeout_ms) + kSilence),
      progress_(progress),
      workers_(loop_, {program, std::filesystem::path(run_dir).parent_path().string(), false}),
      store_([this](int64_t rank, const Channel::Message& answer) {
        // A rank that does not take its answer has ended.
        ranks_[static_cast<size_t>(rank)].worker->control.send(answer, -1, milliseconds(0));
      }),
      ranks_(static_cast<size_t>(spec.world_size)) {
  write_file(collective_spec_path(run_dir), to_text(spec));
  for (int64_t rank = 0; rank < spec.world_size; ++rank)
    ranks_[static_cast<size_t>(rank)].worker = workers_.start(
        {.role = "collective", .golden = "", .rank = rank, .run_dir = run_dir}, 1,
        [this, rank](const Channel::Message& message) { on_message(rank, message); });
}

void Ranks::on_message(int64_t rank, const Channel::Message& message) {
  heard_ = Clock::now();
  int64_t rows = 0;
  if (message.size() == 4 && message[0] == "set" && message[2] == kRowsDoneKey) {
    std::from_chars(message[3].data(), message[3].data() + message[3].size(), rows);
    progress_(rows);
  }
  store_.handle(rank, message);
}

bool Ranks::over() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.noted; });
}

void Ranks::note_ends(Deadline now) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const Worker& worker = *rank.worker;
    if (!worker.ended || rank.noted) continue;
    rank.noted = true;
    store_.leave(static_cast<int64_t>(i));
    if (worker.status == 0) continue;
    note_failure(now);
    ProcessEnd end;
    end.who = worker.who;
    end.rank = worker.task.rank;
    end.time_ns = worker.ended_ns;
    if (WIFSIGNALED(worker.status)) end.signal = WTERMSIG(worker.status);
    if (WIFEXITED(worker.status)) end.exit_code = WEXITSTATUS(worker.status);
    end.by_launcher = worker.by_launcher;
    end.past_deadline = worker.past_deadline;
    insert_end(&ends_, std::move(end));
  }
}

void Ranks::note_failure(Deadline now) {
  if (first_bad_ != kNoDeadline) return;
  first_bad_ = now;
  for (Rank& rank : ranks_)
    if (!rank.worker->ended && rank.worker->pid != 0)
      rank.stopped = is_stopped(read_process_state(rank.worker->pid));
}

void Ranks::end_all(milliseconds grace) {
  for (Rank& rank : ranks_)
    if (!rank.worker->ended) workers_.end(*rank.worker, grace);
}

CollectiveEnd Ranks::run() {
  while (!over()) {
    loop_.wait(kWait);
    const Deadline now = Clock::now();
    workers_.tick(now);
    workers_.check();
    if (const int number = signals_.next()) {
      end_all(interrupted_by_ == 0 ? kTermGrace : milliseconds(0));
      if (interrupted_by_ == 0) interrupted_by_ = number;
    }
    note_ends(now);
    if (now > heard_ + silence_ && first_bad_ == kNoDeadline) {
      note_failure(now);
      for (Rank& rank : ranks_) rank.worker->past_deadline = !rank.worker->ended;
    }
    if (first_bad_ != kNoDeadline && now >= first_bad_ + kNoticeGrace) end_all(kTermGrace);
  }
  return {interrupted_by_, interrupted_by_ == 0 ? problem() : ""};
}

// The first that failed by itself; what it says of why, or how its process ended; who was stopped.
std::string Ranks::problem() const {
  if (ends_.empty()) return "";
  const ProcessEnd& first = ends_.front();
  std::string text = read_rank_file(rank_file_path(run_dir_, first.rank)).error;
  if (first.past_deadline) {
    text = "has said nothing for too long";
  } else if (text.empty() || first.signal != 0) {
    const Worker& worker = *ranks_[static_cast<size_t>(first.rank)].worker;
    const std::string line = log_tail(log_path(run_dir_, worker.who), 1);
    text = describe_end(worker.status) + (line.empty() ? "" : ": " + line);
  }
  text = fmt::format("{}: {}", first.who, text);
  for (const Rank& rank : ranks_)
    if (rank.stopped) text += fmt::format("; {} was stopped by a signal", rank.worker->who);
  return text;
}

}  // namespace

CollectiveEnd execute_collective(const CollectiveSpec& spec, const std::string& run_dir,
                                 const std::string& worker_program,
                                 const std::function<void(int64_t rows)>& progress) {
  return Ranks(spec, run_dir, worker_program, progress).run();
}

}  // namespace lockstep
