#include "sim/tools/program/rank_facts.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <sstream>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFactsBytesMost = 1 << 16, kChildrenBytesMost = 1 << 20;
constexpr int64_t kStackBytesMost = 1 << 18;
constexpr size_t kFramesMost = 20;
constexpr int64_t kErrorBytesMost = 300;

std::string rank_file(const std::string& folder, int64_t rank, const char* what) {
  return fmt::format("{}/rank-{}.{}", folder, rank, what);
}

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

InputErrors read_if_there(const std::string& path, const TakeJson& take) {
  if (!is_there(path)) return {};
  return read_json_facts(path, "file of the agent", kFactsBytesMost, take);
}

// These are TakeJson.

std::string take_facts(const Json& facts, ProgramRankFacts* found) {
  found->torch = facts.at("torch").get<std::string>();
  found->tap = facts.at("tap").get<std::string>();
  found->world = whole_number(facts.at("world"));
  found->timeout_ms = whole_number(facts.at("timeout_ms"));
  found->met = true;
  return "";
}

std::string take_groups(const Json& groups, ProgramRankFacts* found) {
  if (!groups.is_array()) return "it is no list";
  for (const Json& group : groups) {
    RankGroup& one = found->groups.emplace_back();
    one.name = group.at("name").get<std::string>();
    get_exact(group.at("ranks"), one.ranks);
    if (group.contains("description")) one.description = group.at("description").get<std::string>();
    if (group.contains("timeout_ms")) one.timeout_ms = whole_number(group.at("timeout_ms"));
  }
  return "";
}

// Of an exception's text, which may go on with the C++ stack.
std::string first_line(const std::string& text) {
  return printable(text.substr(0, text.find('\n'))).substr(0, kErrorBytesMost);
}

std::string take_error(const Json& facts, int64_t rank, ProgramRankFacts* found, RankError* error) {
  const std::string text = facts.at("text").get<std::string>();
  found->error = facts.at("type").get<std::string>() + ": " + first_line(text);
  found->line = facts.at("line").get<std::string>();
  const int64_t phase = whole_number(facts.at("phase"));
  error->sequence = whole_number(facts.at("sequence"));
  error->bucket = whole_number(facts.at("bucket"));
  error->waited_ms = whole_number(facts.at("waited_ms"));
  error->deadline_ms = found->timeout_ms;
  error->step = whole_number(facts.at("step"));
  error->phase = to_word(static_cast<Phase>(phase));
  error->rank = rank;
  const bool waits = facts.at("in_group").get<bool>() || error->sequence > 0 ||
                     phase <= static_cast<int64_t>(Phase::construction) ||
                     phase == static_cast<int64_t>(Phase::teardown);
  error->kind = error_kind_of(text, waits);
  error->text = found->error;
  if (!found->line.empty()) error->text += " (" + found->line + ")";
  return "";
}

std::string take_child(const Json& line, pid_t pid, ChildEnd* found) {
  const int64_t of = whole_number(line.at("pid")), sent = whole_number(line.at("sent"));
  const int64_t signal = whole_number(line.at("signal"));
  const int64_t exit_code = whole_number(line.at("exit_code"));
  for (const int64_t number : {sent, signal})
    if (number < 0 || number > SIGRTMAX) return "there is no such signal";
  if (exit_code < -1 || exit_code > 255) return "there is no such exit code";
  if (of != pid) return "";
  if (sent == 0)
    *found = {static_cast<int>(exit_code), static_cast<int>(signal), found->sent, true};
  else if (!found->ended)
    found->sent = static_cast<int>(sent);
  return "";
}

struct Frame {
  std::string file, rest;  // "/x/train.py"; "31 in step"
};

// Of the last time that it was asked for, without those of the agent. Frames of faulthandler:
// `  File "/x/train.py", line 31 in step`.
std::vector<Frame> frames_in(const std::string& path) {
  const auto text = read_foreign_file(path, kStackBytesMost);
  std::vector<Frame> frames;
  std::istringstream lines(text.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kFile = "  File \"", kHead = "Stack (most recent call first)";
    if (line.starts_with(kHead)) frames.clear();
    const size_t end = line.find("\", line ");
    if (!line.starts_with(kFile) || end == std::string::npos || frames.size() >= kFramesMost)
      continue;
    const std::string file = line.substr(kFile.size(), end - kFile.size());
    if (file.find("/lockstep/agent/") != std::string::npos) continue;
    frames.push_back({file, line.substr(end + 8)});
  }
  return frames;
}

bool is_of_library(const Frame& frame) {
  return frame.file.find("/torch/") != std::string::npos ||
         frame.file.find("-packages/") != std::string::npos ||
         frame.file.find("/lib/python") != std::string::npos;
}

// "train.py:31 step()"
std::string to_words(const Frame& frame) {
  const size_t in = frame.rest.find(" in ");
  const std::string name = in == std::string::npos ? "" : " " + frame.rest.substr(in + 4) + "()";
  return printable(fmt::format("{}:{}{}", frame.file.substr(frame.file.rfind('/') + 1),
                               frame.rest.substr(0, in), name));
}

}  // namespace

ErrorKind error_kind_of(const std::string& text, bool waits) {
  const auto holds = [&](auto... words) {
    return ((text.find(words) != std::string::npos) || ...);
  };
  const bool theirs =
      holds("gloo/", "[c10d]", "ProcessGroup", "Socket Timeout", "socketStartConnect",
            "monitoredBarrier", "TCPStore", "wait timeout after", "Connection closed by",
            "Application timeout caused pair closure", "Connection reset by peer", "Broken pipe",
            "clients joined");
  if (!theirs || !waits) return ErrorKind::exception;
  if (holds("failed to pass monitoredBarrier")) return ErrorKind::timeout;
  if (holds("reached monitoredBarrier, but")) return ErrorKind::peer_lost;
  if (holds("imed out", "imeout")) return ErrorKind::timeout;
  if (holds("losed", "reset", "roken pipe", "Read error", "Write error", "refused"))
    return ErrorKind::peer_lost;
  return ErrorKind::rejected;
}

InputErrors read_rank_facts(const std::string& folder, int64_t rank, ProgramRankFacts* found,
                            RankError* error) {
  InputErrors errors = read_if_there(rank_file(folder, rank, "facts.json"),
                                     [&](const Json& facts) { return take_facts(facts, found); });
  if (errors.empty())
    errors = read_if_there(rank_file(folder, rank, "groups.json"),
                           [&](const Json& groups) { return take_groups(groups, found); });
  if (errors.empty())
    errors = read_if_there(rank_file(folder, rank, "error.json"), [&](const Json& facts) {
      return take_error(facts, rank, found, error);
    });
  for (const Frame& frame : frames_in(rank_file(folder, rank, "stack"))) {
    if (found->stack.empty() || !is_of_library(frame)) found->places.push_back(to_words(frame));
    found->stack.push_back(to_words(frame));
  }
  return errors;
}

std::vector<std::string> files_of_stack(const std::string& folder, int64_t rank) {
  std::vector<std::string> files;
  for (Frame& frame : frames_in(rank_file(folder, rank, "stack")))
    files.push_back(std::move(frame.file));
  return files;
}

Expected<std::optional<pid_t>> read_rank_process(const std::string& folder, int64_t rank) {
  std::optional<pid_t> found;
  const InputErrors errors =
      read_if_there(rank_file(folder, rank, "process.json"), [&](const Json& process) {
        const int64_t pid = whole_number(process.at("pid"));
        if (pid <= 1 || pid > INT32_MAX) return "there is no such process";
        found = static_cast<pid_t>(pid);
        return "";
      });
  if (!errors.empty()) return errors;
  return found;
}

Expected<ChildEnd> read_child_end(const std::string& folder, pid_t pid) {
  ChildEnd found;
  const std::string path = folder + "/children.jsonl";
  if (!is_there(path)) return found;
  const InputErrors errors =
      read_json_lines(path, "line of the agent", {kChildrenBytesMost},
                      [&](const Json& line) { return take_child(line, pid, &found); });
  if (!errors.empty()) return errors;
  return found;
}

}  // namespace lockstep
