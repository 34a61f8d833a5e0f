#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/json/words.h"
#include "scenarios/parse/suite.h"

namespace lockstep {

namespace fs = std::filesystem;

Expected<std::vector<std::string>> find_scenario_files(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return file_error(printable(path), "no such file or directory");
  if (status.type() == fs::file_type::none)
    return file_error(printable(path), fmt::format("cannot be opened: {}", error.message()));
  if (!fs::is_directory(status)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  fs::recursive_directory_iterator at(path, error), end;
  for (; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    const std::string name = at->path().filename().string();
    if (name.ends_with(".json") && !name.ends_with("schema.json") && !at->is_directory(unreadable))
      files.push_back(at->path().string());
  }
  if (error) return file_error(printable(path), fmt::format("cannot be read: {}", error.message()));
  if (files.empty())
    return file_error(printable(path), "there is no scenario in this directory", "*.json files");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace lockstep
