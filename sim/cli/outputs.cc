#include "sim/cli/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/execution.h"
#include "sim/plan/plans.h"
#include "sim/report/ci/github.h"
#include "sim/report/ci/junit.h"
#include "sim/report/document.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string whole(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return ((error ? fs::absolute(path, error) : found) / "").parent_path().string();
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) { return whole(a) == whole(b); }

void check_output(const char* option, const std::string& path, InputErrors* errors) {
  if (path.empty()) return;
  if (const auto why = why_not_writable(path))
    errors->push_back(option_error(fmt::format("{} {}", option, *why)));
}

int write_output(const char* option, const std::string& path, int code,
                 const std::function<std::string()>& text) {
  if (path.empty()) return code;
  try {
    write_atomically(path, text());
    return code;
  } catch (const std::exception& error) {
    print_error(fmt::format("lockstep: error: {} {}\n", option, error.what()));
    return kExitBadInput;
  }
}

std::string own_command() {
  const std::string words = read_foreign_file("/proc/self/cmdline").value_or("");
  std::string command;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find('\0', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    command += begin == 0 ? "lockstep" : " " + shell_word(word);
    begin = end + 1;
  }
  return command;
}

int write_page(const std::string& path, int code, const std::function<HtmlPage()>& page) {
  return write_output("--html", path, code, [&] {
    HtmlPage written = page();
    written.command = own_command();
    written.exit_code = code;
    return html_page(written);
  });
}

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool on_github(const CiOptions& options) {
  if (options.annotations == "auto") return variable("GITHUB_ACTIONS") == "true";
  return options.annotations == "github";
}

void find_lines(TestReport* report) {
  std::map<std::string, int64_t> known;
  for (TestCase& one : report->cases) {
    if (one.file.empty() || one.line > 0) continue;
    const auto [place, fresh] = known.try_emplace(one.file, 0);
    if (fresh) place->second = expectation_line(one.file);
    one.line = place->second;
  }
}

// Other steps append to the same file.
void append_report(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  const bool written =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written)
    print_error(
        fmt::format("lockstep: warning: GITHUB_STEP_SUMMARY {}: {}\n", path, strerror(errno)));
  if (fd >= 0) ::close(fd);
}

}  // namespace

InputErrors ci_errors(const CiOptions& options) {
  InputErrors errors;
  check_output("--junit", options.junit, &errors);
  return errors;
}

std::optional<InputError> try_trace(const TraceOptions& options, const RunOutcome& outcome,
                                    size_t index, size_t runs) {
  if (options.path.empty()) return std::nullopt;
  try {
    write_trace(options, outcome, index, runs);
    return std::nullopt;
  } catch (const std::exception& error) {
    return option_error(fmt::format("--trace {}", error.what()));
  }
}

int leave_trace(const TraceOptions& options, const RunOutcome& outcome, int code, size_t index,
                size_t runs) {
  const std::optional<InputError> problem = try_trace(options, outcome, index, runs);
  if (!problem) return code;
  print_error(to_text(*problem) + "\n");
  return kExitBadInput;
}

int leave_ci_reports(const CiOptions& options, TestReport report, int code) {
  const bool github = on_github(options);
  if (options.junit.empty() && !github) return code;
  find_lines(&report);
  code = write_output("--junit", options.junit, code, [&] { return junit_text(report); });
  if (!github) return code;
  std::error_code ignored;
  print_commands(github_annotations(report, variable("GITHUB_WORKSPACE"),
                                    std::filesystem::current_path(ignored).string()));
  const std::string summary = variable("GITHUB_STEP_SUMMARY");
  if (!summary.empty()) append_report(summary, github_summary(report));
  return code;
}

int64_t expectation_line(const std::string& path) {
  InputErrors errors;
  const auto bytes = read_foreign_file(path);
  nlohmann::ordered_json document;
  Places places(path);
  if (!bytes || !read_json(bytes.value(), path, &document, &places, &errors) ||
      !document.is_object())
    return 1;
  InputError at;
  places.locate(document.contains("expect") ? "/expect" : "/name", true, &at);
  return std::max<int64_t>(1, at.line);
}

}  // namespace lockstep
