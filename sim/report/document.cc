#include "sim/report/document.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/judge/rank_view.h"
#include "sim/report/kill_matrix.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json summary_json(const Summary& summary) {
  return {{"runs", summary.runs},
          {"pass", summary.pass},
          {"fail", summary.fail},
          {"inconclusive", summary.inconclusive},
          {"met", summary.met},
          {"unmet", summary.unmet},
          {"undecided", summary.undecided},
          {"known", summary.known},
          {"tensors_compared", summary.tensors_compared},
          {"worst_distance", or_null(summary.worst_distance)},
          {"worst_statistic", or_null(summary.worst_statistic)}};
}

ordered_json error_json(const InputError& error) {
  return {{"file", or_null(error.file)},
          {"line", error.line > 0 ? ordered_json(error.line) : ordered_json(nullptr)},
          {"column", error.column > 0 ? ordered_json(error.column) : ordered_json(nullptr)},
          {"pointer", or_null(error.pointer)},
          {"message", error.message},
          {"allowed", or_null(error.allowed)}};
}

bool compares_bytes(Lane lane) {
  const LaneMethod method = row_of(lane).method;
  return method == LaneMethod::replicas || method == LaneMethod::bits;
}

void add_passed(const RunResult& run, Summary* summary) {
  for (const LaneResult& lane : run.lanes) {
    if (compares_bytes(lane.lane)) summary->tensors_compared += lane.compared;
    if (lane.distance) keep_worst(*lane.distance, &summary->worst_distance);
    if (lane.statistic && lane.lane == Lane::rounding)
      keep_worst(*lane.statistic, &summary->worst_statistic);
  }
}

}  // namespace

Summary summary_of(const std::vector<RunResult>& runs) {
  Summary summary;
  for (const RunResult& run : runs) {
    ++summary.runs;
    ++(run.verdict == Verdict::pass   ? summary.pass
       : run.verdict == Verdict::fail ? summary.fail
                                      : summary.inconclusive);
    ++(run.baseline == "known" ? summary.known
       : !run.met              ? summary.undecided
       : *run.met              ? summary.met
                               : summary.unmet);
    if (run.verdict == Verdict::pass) add_passed(run, &summary);
  }
  return summary;
}

ordered_json as_json(const Machine& machine) {
  return {{"cpu", or_null(machine.cpu)},
          {"cores", machine.cores},
          {"load", machine.load},
          {"memory_mb", machine.memory_mb},
          {"kernel", or_null(machine.kernel)},
          {"environment", machine.environment}};
}

ordered_json as_json(const Libraries& libraries) {
  ordered_json json = {{"torch", or_null(libraries.torch)},
                       {"gloo", or_null(libraries.gloo)},
                       {"blas", or_null(libraries.blas)},
                       {"torch_cpu_capability", or_null(libraries.torch_cpu_capability)},
                       {"blas_cpu_capability", or_null(libraries.blas_cpu_capability)}};
  if (!libraries.cuda.empty()) json["cuda"] = libraries.cuda;
  return json;
}

ordered_json as_json(const ResultDocument& document) {
  ordered_json runs = ordered_json::array(), errors = ordered_json::array();
  ordered_json not_run = ordered_json::array();
  for (const RunResult& run : document.runs) runs.push_back(as_json(run));
  for (const NotRun& run : document.not_run)
    not_run.push_back(
        {{"name", run.name}, {"file", run.file}, {"label", run.label}, {"why", run.why}});
  for (const InputError& error : document.errors) errors.push_back(error_json(error));
  return with_head({{"seed", document.seed},
                    {"machine", as_json(document.machine)},
                    {"libraries", as_json(document.libraries)},
                    {"verdict", or_null(document.verdict)},
                    {"exit_code", document.exit_code},
                    {"duration_ms", document.duration_ms},
                    {"summary", summary_json(summary_of(document.runs))},
                    {"kills", as_json(count_kills(document.runs))},
                    {"runs", std::move(runs)},
                    {"not_run", std::move(not_run)},
                    {"errors", std::move(errors)}});
}

std::string to_text(const ordered_json& document) {
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(const ResultDocument& document) { return to_text(as_json(document)); }

namespace {

std::string temporary_of(const std::string& path) {
  return fmt::format("{}.{}.unfinished", path, getpid());
}

bool is_special(const std::string& path) {  // a device, a pipe: written to, never replaced
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), path);
}

void write_all(int fd, const std::string& path, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      close(fd);
      fail(path, error);
    }
    done += static_cast<size_t>(n);
  }
  if (close(fd) != 0) fail(path, errno);
}

}  // namespace

std::optional<std::string> why_not_writable(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return path + ": is a directory";
  if (is_special(path)) {
    if (access(path.c_str(), W_OK) == 0) return std::nullopt;
    return fmt::format("{}: {}", path, strerror(errno));
  }
  const std::string temporary = temporary_of(path);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return fmt::format("{}: {}", path, strerror(errno));
  close(fd);
  unlink(temporary.c_str());
  return std::nullopt;
}

void write_atomically(const std::string& path, const std::string& text) {
  const bool special = is_special(path);
  const std::string target = special ? path : temporary_of(path);
  const int flags = O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_TRUNC);
  const int fd = open(target.c_str(), flags, 0666);
  if (fd < 0) fail(path, errno);
  if (special) return write_all(fd, path, text);
  try {
    write_all(fd, path, text);
  } catch (...) {
    unlink(target.c_str());
    throw;
  }
  if (std::rename(target.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(target.c_str());
    fail(path, error);
  }
}

namespace {

using Json = nlohmann::ordered_json;

std::string key_of(const std::string& name, const std::string& label, const std::string& file) {
  return name + "\n" + label + "\n" + std::filesystem::path(file).filename().string();
}

InputError refused(const std::string& path, const std::string& why) {
  return option_error(fmt::format("--baseline {}: {}", path, why),
                      "what --json of an earlier invocation wrote");
}

std::string text_of_place(const InputError& error) {
  return fmt::format("{} in line {}", error.message, error.line);
}

bool is_run(const Json& run) {
  const auto is_text = [&](const char* key) { return run.contains(key) && run[key].is_string(); };
  return run.is_object() && is_text("name") && is_text("label") && is_text("file") &&
         run.contains("met") && (run["met"].is_boolean() || run["met"].is_null());
}

}  // namespace

Expected<EarlierResult> EarlierResult::load(const std::string& path) {
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) return refused(path, text.errors().front().message);
  const auto parsed = parse_foreign_json(text.value(), path, "");
  if (!parsed) return refused(path, text_of_place(parsed.errors().front()));
  const Json& document = parsed.value();
  if (!document.is_object() || !document.contains("runs") || !document["runs"].is_array())
    return refused(path, "no result of lockstep");
  EarlierResult earlier;
  for (const Json& run : document["runs"]) {
    if (!is_run(run)) return refused(path, "a run in it has no name, label, file or met");
    std::optional<bool> met;
    if (run["met"].is_boolean()) met = run["met"].get<bool>();
    const auto text_of = [&](const char* key) { return run[key].get<std::string>(); };
    const auto [place, fresh] =
        earlier.met_.emplace(key_of(text_of("name"), text_of("label"), text_of("file")), met);
    if (!fresh && met == true) place->second = met;  // of two alike, the one that excuses nothing
  }
  return earlier;
}

std::string EarlierResult::beside(const RunResult& run) const {
  const auto found = met_.find(key_of(run.name, run.label, run.file));
  if (found == met_.end()) return "absent";
  const std::optional<bool>& then = found->second;
  if (run.met == true) return then == true ? "same" : "fixed";
  if (then == true) return "regression";
  return then == run.met ? "known" : "changed";
}

}  // namespace lockstep
