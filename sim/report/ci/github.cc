#include "sim/report/ci/github.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "scenarios/base/text.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Result = TestCase::Result;

bool speaks(const TestCase& one) {
  return one.result == Result::failed || one.result == Result::inconclusive;
}

std::string title_of(const TestCase& one) {
  std::string title = one.result == Result::failed ? "fail: " : "inconclusive: ";
  if (one.kind == "bad input") return "bad input";
  title += one.group;
  return one.name == one.group ? title : title + " " + one.name;
}

std::string from_workspace(const std::string& file, const std::string& workspace,
                           const std::string& folder) {
  const std::string whole = (fs::path(folder) / file).lexically_normal().string();
  const std::string root = (fs::path(workspace) / "").lexically_normal().string();
  if (!workspace.empty() && whole.starts_with(root)) return whole.substr(root.size());
  return file;
}

const std::string* property_of(const TestCase& one, const char* name) {
  for (const auto& [key, value] : one.properties)
    if (key == name) return &value;
  return nullptr;
}

using Escapes = std::vector<std::pair<char, std::string_view>>;

std::string escaped(std::string_view text, const Escapes& escapes) {
  std::string out;
  for (const char c : text) {
    const auto escape = std::find_if(escapes.begin(), escapes.end(),
                                     [c](const auto& known) { return known.first == c; });
    out += escape == escapes.end() ? std::string_view(&c, 1) : escape->second;
  }
  return out;
}

// The first that speak, as many as are shown, and how many more do.
struct Speakers {
  std::vector<const TestCase*> shown;
  int64_t left = 0;
};

Speakers speakers_of(const TestReport& report) {
  Speakers speakers;
  for (const TestCase& one : report.cases) {
    if (!speaks(one)) continue;
    if (std::ssize(speakers.shown) < kAnnotationsMost)
      speakers.shown.push_back(&one);
    else
      ++speakers.left;
  }
  return speakers;
}

// A block of code that no text in it can end: indented by four.
std::string code_block(const std::string& text) { return "\n      " + printable(text) + "\n\n"; }

std::string row_of(const std::vector<TestCase>& group) {
  const CaseCounts counts = counts_of(group);
  double time_s = 0;
  for (const TestCase& one : group) time_s += one.time_s;
  const char* verdict = counts.failed > 0         ? "**fail**"
                        : counts.inconclusive > 0 ? "**inconclusive**"
                        : counts.passed > 0       ? "pass"
                                                  : "skipped";
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {:.1f} |\n",
                     markdown_text(group.front().group), verdict, grouped(counts.all),
                     grouped(counts.passed), grouped(counts.failed), grouped(counts.inconclusive),
                     grouped(counts.skipped), time_s);
}

std::string summary_table_of(const std::vector<TestCase>& cases) {
  std::string text =
      "| scenario | verdict | runs | pass | fail | inconclusive | skipped | time/s |\n"
      "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  std::vector<TestCase> group;
  for (const TestCase& one : cases) {
    if (!group.empty() && group.front().group != one.group) {
      text += row_of(group);
      group.clear();
    }
    group.push_back(one);
  }
  return group.empty() ? "" : text + row_of(group) + "\n";
}

std::string failure_item(const TestCase& one) {
  std::string text =
      fmt::format("* **{}**: {}\n", markdown_text(title_of(one)), markdown_text(one.message));
  const std::string* again = property_of(one, "again");
  return again == nullptr ? text : text + code_block(*again);
}

std::string annotation(const TestCase& one, const std::string& workspace,
                       const std::string& folder) {
  const bool error = one.result == Result::failed || one.kind == "bad input";
  std::string text = error ? "::error " : "::warning ";
  if (!one.file.empty()) {
    text += "file=" + command_property(from_workspace(one.file, workspace, folder)) + ",";
    if (one.line > 0) text += fmt::format("line={},", one.line);
    if (one.column > 0) text += fmt::format("col={},", one.column);
  }
  std::string message = one.message;
  if (const std::string* again = property_of(one, "again")) message += "\nagain: " + *again;
  return text + fmt::format("title={}::{}\n", command_property(printable(title_of(one))),
                            command_data(message));
}

}  // namespace

std::string command_data(std::string_view text) {
  return escaped(text, {{'%', "%25"}, {'\r', "%0D"}, {'\n', "%0A"}});
}

std::string command_property(std::string_view text) {
  return escaped(command_data(text), {{':', "%3A"}, {',', "%2C"}});
}

std::string github_annotations(const TestReport& report, const std::string& workspace,
                               const std::string& folder) {
  std::string text;
  const Speakers speakers = speakers_of(report);
  for (const TestCase* one : speakers.shown) text += annotation(*one, workspace, folder);
  if (speakers.left > 0)
    text += fmt::format(
        "::notice title={}::and {} more, of {}: see the job summary or the reports\n",
        command_property(report.name), speakers.left, std::ssize(speakers.shown) + speakers.left);
  return text;
}

std::string github_summary(const TestReport& report) {
  std::string text =
      fmt::format("### {}\n\n", markdown_text(report.name)) + summary_table_of(report.cases);
  const Speakers speakers = speakers_of(report);
  for (const TestCase* one : speakers.shown) text += failure_item(*one);
  if (speakers.left > 0) text += fmt::format("* and {} more\n", grouped(speakers.left));
  if (!speakers.shown.empty()) text += "\n";
  return text + markdown_text(report.answer) + "\n\n";
}

}  // namespace lockstep
