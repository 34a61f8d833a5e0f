#include "sim/cli/ci_reports.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/conclude.h"
#include "sim/cli/output_files.h"
#include "sim/report/ci/github.h"
#include "sim/report/ci/junit.h"

namespace lockstep {
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
