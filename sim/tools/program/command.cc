#include "sim/tools/program/command.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The letters of one word of options, up to one that takes a value.
bool leaves_out_the_agent(std::string_view word) {
  for (const char letter : word.substr(1)) {
    if (std::string_view("EIS").find(letter) != std::string_view::npos) return true;
    if (std::string_view("cmWX").find(letter) != std::string_view::npos) break;
  }
  return false;
}

bool is_python(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  return name.starts_with("python") &&
         name.find_first_not_of("0123456789.", 6) == std::string::npos;
}

bool can_be_executed(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& program, const std::string& directory) {
  if (program.find('/') != std::string::npos) {
    const fs::path path = fs::path(directory) / program;
    return can_be_executed(path) ? path.string() : "";
  }
  const char* path = ::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path found = fs::path(directory) / (folder.empty() ? "." : folder) / program;
    if (can_be_executed(found)) return found.string();
  }
  return "";
}

std::optional<PythonCommand> python_command(const std::vector<std::string>& argv) {
  if (argv.empty() || !is_python(argv[0])) return std::nullopt;
  PythonCommand command;
  command.has_agent = true;
  for (size_t i = 1; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    if (word == "-") return std::nullopt;
    if (word.size() < 2 || word[0] != '-') {
      command.script = word;
      return command;
    }
    if (word[1] == '-') return std::nullopt;  // of no use for a training
    if (leaves_out_the_agent(word)) command.has_agent = false;
    const size_t at = word.find_first_of("cmWX");
    if (at == std::string::npos) continue;
    if (word[at] == 'c' || word[at] == 'm') return command;
    if (at + 1 == word.size()) ++i;  // its value is the next word
  }
  return std::nullopt;
}

void check_command(const std::vector<std::string>& argv, InputErrors* errors,
                   const std::string& directory) {
  if (find_program(argv[0], directory).empty()) {
    errors->push_back(option_error(fmt::format(
        "COMMAND {}: {}", argv[0],
        argv[0].find('/') == std::string::npos ? "no such program on PATH" : "no such program")));
    return;
  }
  std::error_code error;
  const auto python = python_command(argv);
  if (python && !python->script.empty() && !fs::exists(fs::path(directory) / python->script, error))
    errors->push_back(
        option_error(fmt::format("COMMAND {} {}: no such file", argv[0], python->script)));
}

}  // namespace lockstep
