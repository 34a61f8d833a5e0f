#include "scenarios/parse/read_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "scenarios/parse/suite.h"
#include "scenarios/parse/words.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
constexpr size_t kLargestFile = 16 << 20;

InputError problem(const std::string& path, std::string message, std::string allowed = "") {
  return {printable(path), 0, 0, "", std::move(message), std::move(allowed)};
}

}  // namespace

std::optional<std::string> read_input_file(const std::string& path, InputErrors* errors) {
  const auto fail = [&](std::string message, std::string allowed = "") {
    errors->push_back(problem(path, std::move(message), std::move(allowed)));
    return std::nullopt;
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return fail("this is a directory", "a scenario file");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             std::fclose);
  if (file == nullptr) return fail(fmt::format("cannot be opened: {}", std::strerror(errno)));
  std::string bytes;
  char piece[65536];
  while (const size_t count = std::fread(piece, 1, sizeof piece, file.get())) {
    bytes.append(piece, count);
    if (bytes.size() > kLargestFile) return fail("the file is too large", "at most 16 MiB");
  }
  if (std::ferror(file.get()) != 0)
    return fail(fmt::format("cannot be read: {}", std::strerror(errno)));
  return bytes;
}

Expected<std::vector<std::string>> find_scenario_files(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return problem(path, "no such file or directory");
  if (status.type() == fs::file_type::none)
    return problem(path, fmt::format("cannot be opened: {}", error.message()));
  if (!fs::is_directory(status)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  fs::recursive_directory_iterator at(path, error), end;
  for (; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    const std::string name = at->path().filename().string();
    if (name.ends_with(".json") && !name.ends_with("schema.json") && !at->is_directory(unreadable))
      files.push_back(at->path().string());
  }
  if (error) return problem(path, fmt::format("cannot be read: {}", error.message()));
  if (files.empty()) return problem(path, "there is no scenario in this directory", "*.json files");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace lockstep
