#include "sim/weights/folders.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kExtensions = {".safetensors", ".pt", ".pth"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// step-2 before step-10: runs of digits by their value.
bool naturally_before(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto number = [](const std::string& text, size_t* at) {
      while (*at + 1 < text.size() && text[*at] == '0' && is_digit(text[*at + 1])) ++*at;
      const size_t begin = *at;
      while (*at < text.size() && is_digit(text[*at])) ++*at;
      return text.substr(begin, *at - begin);
    };
    const std::string x = number(a, &i), y = number(b, &j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

using Files = std::vector<std::string>;  // relative

Files checkpoints_of(const fs::path& folder, std::error_code* error) {
  Files files;
  // Links to folders are not followed: no loops.
  fs::recursive_directory_iterator entry(folder, *error), end;
  for (; !*error && entry != end; entry.increment(*error)) {
    const std::string extension = entry->path().extension().string();
    if (std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end() &&
        !entry->is_directory())
      files.push_back(entry->path().lexically_relative(folder).string());
  }
  return files;
}

std::string stem_of(const std::string& name) { return fs::path(name).replace_extension().string(); }

// Those whose stem is unique, by stem.
std::map<std::string, std::string> by_stem(const Files& files) {
  std::map<std::string, std::string> stems;
  for (const std::string& file : files)
    if (const auto [place, is_new] = stems.emplace(stem_of(file), file); !is_new)
      place->second.clear();
  std::erase_if(stems, [](const auto& stem) { return stem.second.empty(); });
  return stems;
}

Expected<Files> read_folder(const std::string& folder) {
  std::error_code error;
  Files files = checkpoints_of(folder, &error);
  if (error) return file_error(folder, error.message());
  if (files.empty())
    return file_error(folder, "has no checkpoints in it", ".safetensors, .pt or .pth files");
  return files;
}

}  // namespace

bool has_checkpoints(const std::string& folder) {
  std::error_code error;
  return !checkpoints_of(folder, &error).empty();
}

Expected<std::vector<FilePair>> pair_files(const std::string& a, const std::string& b) {
  std::error_code error;
  for (const std::string& path : {a, b})
    if (!fs::exists(path, error)) return file_error(path, error ? error.message() : "is not there");
  const bool folders = fs::is_directory(a, error);
  if (folders != fs::is_directory(b, error))
    return file_error(
        a,
        folders ? "is a folder, and " + b + " is a file" : "is a file, and " + b + " is a folder",
        "two files or two folders");
  if (!folders) return std::vector<FilePair>{{fs::path(a).filename().string(), a, b}};
  const auto of_a = read_folder(a), of_b = read_folder(b);
  if (!of_a) return of_a.errors();
  if (!of_b) return of_b.errors();
  const auto stems_a = by_stem(of_a.value()), stems_b = by_stem(of_b.value());
  Files left = of_b.value();
  std::vector<FilePair> pairs;
  for (const std::string& name : of_a.value()) {
    std::string partner;
    const auto stem = stems_b.find(stem_of(name));
    if (std::find(left.begin(), left.end(), name) != left.end())
      partner = name;
    else if (stem != stems_b.end() && stems_a.contains(stem->first))
      partner = stem->second;
    std::erase(left, partner);
    pairs.push_back({name, (fs::path(a) / name).string(),
                     partner.empty() ? "" : (fs::path(b) / partner).string()});
  }
  for (const std::string& name : left) pairs.push_back({name, "", (fs::path(b) / name).string()});
  std::sort(pairs.begin(), pairs.end(),
            [](const FilePair& x, const FilePair& y) { return naturally_before(x.name, y.name); });
  return pairs;
}

}  // namespace lockstep
