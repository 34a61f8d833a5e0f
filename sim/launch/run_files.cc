#include "sim/launch/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <regex>
#include <sstream>
#include <system_error>

#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

constexpr int64_t kTailBytes = 16 << 10;

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

std::string last_bytes(const std::string& path) {
  const auto file = open_foreign_file(path, INT64_MAX);  // its end alone is read
  if (!file) return "";
  const int64_t bytes = std::min(file.value().bytes, kTailBytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  if (!read_at(file.value().fd.get(), file.value().bytes - bytes, text.data(), text.size()))
    return "";  // somebody has cut it meanwhile
  return text;
}

}  // namespace

void throw_errno(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

std::string run_dir_of(const std::string& out_dir, size_t index) {
  return fmt::format("{}/{:04}", out_dir, index + 1);
}

void make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0) throw_errno(errno, "cannot make the directory " + path);
}

void remove_dir(const std::string& path) noexcept {
  std::error_code ignored;  // what cannot be removed stays; the run's result does not depend on it
  std::filesystem::remove_all(path, ignored);
}

void remove_if_empty(const std::string& path) noexcept {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && status.st_size == 0) ::unlink(path.c_str());
}

void write_file(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid() || !write_all(fd.get(), text)) throw_errno(errno, "cannot write " + path);
}

std::string read_file(const std::string& path) {
  return read_foreign_file(path, kRunFileBytesMost).value_or("");
}

void append_to_file(const std::string& path, const std::string& text) noexcept {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (fd.valid()) write_all(fd.get(), text);
}

std::string log_tail(const std::string& path, int lines) {
  std::string text = last_bytes(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t from = text.size();
  for (int i = 0; i < lines && from != std::string::npos && from > 0; ++i)
    from = text.rfind('\n', from - 1);
  if (from == std::string::npos || from == 0) return text;
  return text.substr(from + 1);
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was ended by signal {} ({})", number, ::strsignal(number));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::string describe_process(pid_t pid) {
  const std::string proc = fmt::format("/proc/{}/", pid);
  std::string text = fmt::format("--- lockstep: process {} at its deadline\n", pid);
  std::istringstream status(read_file(proc + "status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("State") || line.starts_with("Threads") || line.starts_with("VmRSS"))
      text += line + "\n";
  for (const char* name : {"wchan", "syscall", "stack"})
    if (std::string value = read_file(proc + name); !value.empty())
      text += fmt::format("{}: {}{}", name, value, value.ends_with('\n') ? "" : "\n");
  return text;
}

std::vector<RankRecords> read_all_records(const std::string& dir, int64_t world_size) {
  std::vector<RankRecords> all(static_cast<size_t>(world_size));
  for (int64_t rank = 0; rank < world_size; ++rank) {
    RankRecords& records = all[static_cast<size_t>(rank)];
    std::string why;
    if (read_records(records_path(dir, rank), &records, &why) && records.rank == rank) continue;
    records = RankRecords{};
    records.rank = static_cast<int32_t>(rank);
    records.world_size = static_cast<int32_t>(world_size);
  }
  return all;
}

namespace {

constexpr size_t kNameMax = 100;

}  // namespace

bool is_rank_file(const std::string& name, int64_t rank) {
  static const std::regex kinds(
      R"((records|log|evidence\.json|stack|[a-z0-9_]+\.step-[0-9]+\.(run|golden|index\.txt)))");
  const std::string whose = fmt::format("rank-{}.", rank);
  return name.size() < kNameMax && name.starts_with(whose) &&
         std::regex_match(name.substr(whose.size()), kinds);
}

namespace {

using Json = nlohmann::ordered_json;

// The members of an end, under their names.
template <class End, class F>
void members(End& end, F&& use) {
  use("who", end.who);
  use("rank", end.rank);
  use("order", end.order);
  use("time_ns", end.time_ns);
  use("exit_code", end.exit_code);
  use("signal", end.signal);
  use("by_launcher", end.by_launcher);
  use("past_deadline", end.past_deadline);
}

std::string hash_of(const std::string& text) {
  return fmt::format("{:016x}", hash64(text.data(), text.size()));
}

void take(const Json& document, RunOutcome* outcome) {
  for (const Json& json : document.at("ends")) {
    ProcessEnd end;
    members(end, [&](const char* key, auto& value) { get_exact(json.at(key), value); });
    if (json.contains("lost")) json.at("lost").get_to(end.lost);  // runs of before do not say
    if (!json.at("state").is_null()) end.state = process_state_from(json.at("state"));
    outcome->ends.push_back(std::move(end));
  }
  document.at("log_tails").get_to(outcome->log_tails);
  document.at("golden_problem").get_to(outcome->golden_problem);
  get_exact(document.at("duration_ms"), outcome->duration_ms);
  get_exact(document.at("began_ns"), outcome->began_ns);
  get_exact(document.at("failed_ns"), outcome->failed_ns);
  if (document.contains("core_wait_ns"))
    get_exact(document.at("core_wait_ns"), outcome->core_wait_ns);
  document.at("interrupted").get_to(outcome->interrupted);
}

// Empty, or what is wrong with the ends of processes of so many ranks.
std::string ends_problem(const RunOutcome& outcome, int64_t ranks) {
  if (outcome.log_tails.size() > static_cast<size_t>(ranks)) return "more logs than ranks";
  for (const int64_t time : {outcome.began_ns, outcome.failed_ns, outcome.core_wait_ns})
    if (!is_a_time(time)) return fmt::format("a time of {} ns", time);
  if (outcome.duration_ms < 0 || outcome.duration_ms > kFarthestNs / 1'000'000)
    return fmt::format("a duration of {} ms", outcome.duration_ms);
  for (const ProcessEnd& end : outcome.ends) {
    if (end.rank < -1 || end.rank >= ranks) return fmt::format("an end of rank {}", end.rank);
    if (end.signal < 0 || end.signal > 64) return fmt::format("an end by signal {}", end.signal);
    const int64_t waited_ns = end.state ? end.state->core_wait_ns : 0;
    for (const int64_t time : {end.time_ns, waited_ns})
      if (!is_a_time(time)) return fmt::format("a time of {} ns", time);
  }
  return "";
}

void take_files(RunOutcome* outcome) {
  const int64_t ranks = ranks_of(outcome->plan.scenario);
  const std::string& dir = outcome->run_dir;
  outcome->ranks = read_all_records(dir, ranks);
  for (RankRecords& records : outcome->ranks)
    for (Event& event : records.events) event.time_ns += records.clock_offset_ns;
  std::vector<std::string> goldens = outcome->plan.goldens;
  if (outcome->plan.watches_states()) goldens.push_back("rounding");
  for (const std::string& golden : goldens) {
    RankRecords records;
    std::string ignored;  // not every golden run leaves some
    if (read_records(golden_records_path(dir, golden), &records, &ignored))
      outcome->goldens.push_back(std::move(records));
  }
  for (int64_t rank = 0; rank < ranks; ++rank)
    outcome->evidence.push_back(
        read_foreign_file(evidence_path(dir, rank), kResultBytesMost).value_or(""));
  outcome->log_tails.resize(static_cast<size_t>(ranks));
}

std::string reason_of(const InputError& error) {
  if (error.pointer.empty() && error.line == 0 && error.allowed.empty()) return error.message;
  const std::string place = error.line > 0 ? fmt::format(" in line {}", error.line) : "";
  return fmt::format("has a damaged plan.json: {}{}; expected {}", error.message, place,
                     error.allowed);
}

}  // namespace

std::string ends_path(const std::string& run_dir) { return run_dir + "/ends.json"; }

void write_ends(const RunOutcome& outcome, const std::string& run_dir, const std::string& plan) {
  Json ends = Json::array();
  for (const ProcessEnd& end : outcome.ends) {
    Json& json = ends.emplace_back(Json::object());
    members(end, [&](const char* key, const auto& value) { json[key] = value; });
    json["lost"] = end.lost;
    json["state"] = end.state ? as_json(*end.state) : Json(nullptr);
  }
  const Json document = {{"plan", hash_of(plan)},
                         {"duration_ms", outcome.duration_ms},
                         {"began_ns", outcome.began_ns},
                         {"failed_ns", outcome.failed_ns},
                         {"core_wait_ns", outcome.core_wait_ns},
                         {"interrupted", outcome.interrupted},
                         {"golden_problem", outcome.golden_problem},
                         {"log_tails", outcome.log_tails},
                         {"ends", std::move(ends)}};
  write_file(ends_path(run_dir),
             document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void leave_outcome(const RunOutcome& outcome, const std::string& run_dir) {
  std::filesystem::create_directories(run_dir);
  std::filesystem::permissions(run_dir, std::filesystem::perms::owner_all);
  const std::string plan = to_text(outcome.plan);
  write_file(run_dir + "/plan.json", plan);
  for (const RankRecords& rank : outcome.ranks)
    write_records(fmt::format("{}/rank-{}.records", run_dir, rank.rank), rank);
  for (size_t rank = 0; rank < outcome.evidence.size(); ++rank)
    if (!outcome.evidence[rank].empty())
      write_file(fmt::format("{}/rank-{}.evidence.json", run_dir, rank), outcome.evidence[rank]);
  write_ends(outcome, run_dir, plan);
}

std::optional<RunOutcome> read_stored_run(const std::string& run_dir, std::string* why) {
  const auto no = [&](const std::string& reason) {
    *why = reason;
    return std::nullopt;
  };
  std::error_code error;
  if (!std::filesystem::is_directory(run_dir, error)) return no("is no folder");
  if (!std::filesystem::exists(plan_path(run_dir), error))
    return no("is no run directory: it has no plan.json");
  const auto plan = read_foreign_file(plan_path(run_dir), kResultBytesMost);
  if (!plan) return no("has a plan.json that cannot be read: " + plan.errors().front().message);
  const Json ends =
      json_or_discarded(read_foreign_file(ends_path(run_dir), kResultBytesMost).value_or(""));
  if (!ends.is_object() || !ends.contains("plan"))
    return no(
        "has no ends.json that can be read: the run did not end, or an older lockstep made it");
  if (ends["plan"] != hash_of(plan.value())) return no("has another plan.json than the run had");
  auto checked = read_foreign_plan(plan.value(), plan_path(run_dir));
  if (!checked) return no(reason_of(checked.errors().front()));
  RunOutcome outcome;
  outcome.run_dir = run_dir;
  try {
    take(ends, &outcome);
  } catch (const nlohmann::json::exception& problem) {
    return no(fmt::format("has a damaged ends.json: {}", printable(problem.what())));
  }
  outcome.plan = std::move(checked.value());
  const std::string wrong = ends_problem(outcome, ranks_of(outcome.plan.scenario));
  if (!wrong.empty()) return no("has a damaged ends.json: it holds " + wrong);
  take_files(&outcome);
  return outcome;
}

Json as_json(const ProcessState& state) {
  return {{"state", std::string(state.state != 0 ? 1 : 0, state.state)},
          {"syscall", state.syscall},
          {"wchan", state.wchan},
          {"store_key", state.store_key},
          {"core_wait_ns", state.core_wait_ns},
          {"stack", state.stack}};
}

ProcessState process_state_from(const Json& json) {
  ProcessState state;
  const auto letter = json.at("state").get<std::string>();
  if (!letter.empty()) state.state = letter.front();
  json.at("syscall").get_to(state.syscall);
  json.at("wchan").get_to(state.wchan);
  json.at("store_key").get_to(state.store_key);
  if (json.contains("core_wait_ns")) get_exact(json.at("core_wait_ns"), state.core_wait_ns);
  json.at("stack").get_to(state.stack);
  return state;
}

}  // namespace lockstep
