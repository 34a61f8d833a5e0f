#include "sim/tools/explain/file_rank.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>
#include <string_view>

#include "scenarios/base/text.h"
#include "sim/tools/explain/log_fields.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct NumberAtEnd {
  std::string before;
  int64_t number;
};

std::optional<NumberAtEnd> number_at_end(const std::string& text) {
  size_t begin = text.size();
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  const auto number = number_in<int64_t>(std::string_view(text).substr(begin));
  if (!number || *number >= kLogRankMost) return std::nullopt;
  return NumberAtEnd{text.substr(0, begin), *number};
}

// "tp_rank-" -> "tp_rank".
std::string without_separators(const std::string& before) {
  return before.substr(0, before.find_last_not_of("_-.=") + 1);
}

// Before "rank": "local_rank3" counts a node's processes, "node_rank_1" nodes, "tp-rank-1" places
// in a mesh.
bool is_of_others(const std::string& before) {
  constexpr std::array<std::string_view, 20> kOthers = {
      "node", "group", "host", "machine", "agent",  "role",  "tp",    "pp",       "dp",   "cp",
      "ep",   "sp",    "mp",   "tensor",  "expert", "stage", "shard", "pipeline", "data", "model"};
  if (before.find("local") != std::string::npos) return true;
  const std::string name = without_separators(before);
  size_t begin = name.size();
  while (begin > 0 && std::isalpha(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
  const std::string word = name.substr(begin);
  return std::find(kOthers.begin(), kOthers.end(), word) != kOthers.end();
}

// "rank3", "rank_3", "rank-3", "RANK=3" anywhere in the name.
std::optional<int64_t> rank_word(const std::string& file_name) {
  const std::string name = lower(file_name);
  size_t at = name.find("rank");
  while (at != std::string::npos && is_of_others(name.substr(0, at)))
    at = name.find("rank", at + 4);
  if (at == std::string::npos) return std::nullopt;
  size_t begin = at + 4;
  if (begin < name.size() && std::string_view("_-=.").find(name[begin]) != std::string_view::npos)
    ++begin;
  size_t end = begin;
  while (end < name.size() && is_digit(name[end])) ++end;
  const auto rank = number_in<int64_t>(std::string_view(name).substr(begin, end - begin));
  return rank && *rank < kLogRankMost ? rank : std::nullopt;
}

// What people count besides ranks: "node1.log", "worker-0.log", "rank_3_host_1".
bool counts_others(const std::string& before) {
  constexpr std::array kOtherThings = {"node",  "host",   "worker",   "pod",       "machine",
                                       "agent", "master", "launcher", "replica",   "pid",
                                       "slurm", "job",    "instance", "local_rank"};
  std::string word = lower(before);
  while (!word.empty() && std::isalpha(static_cast<unsigned char>(word.back())) == 0)
    word.pop_back();
  if (word.ends_with("rank") && is_of_others(word.substr(0, word.size() - 4))) return true;
  return std::any_of(kOtherThings.begin(), kOtherThings.end(),
                     [&](const char* other) { return word.ends_with(other); });
}

// Before a number behind a rank's: how many there are ("rank-7-of-8"), or which of a rank's files.
bool counts_no_rank(const std::string& before) {
  constexpr std::array<std::string_view, 11> kNoRanks = {
      "of", "world", "size", "ws", "v", "version", "attempt", "step", "iter", "epoch", "part"};
  const std::string word = without_separators(lower(before));
  return std::any_of(kNoRanks.begin(), kNoRanks.end(), [&](std::string_view all) {
    if (!word.ends_with(all)) return false;
    const std::string_view rest = std::string_view(word).substr(0, word.size() - all.size());
    return rest.empty() || std::isalpha(static_cast<unsigned char>(rest.back())) == 0;
  });
}

// "_dump_3_of_8" -> "_dump_3".
std::string without_count(std::string name) {
  const auto last = number_at_end(name);
  if (!last || !counts_no_rank(last->before)) return name;
  const size_t end = last->before.find_last_of("0123456789");
  return end == std::string::npos ? name : last->before.substr(0, end + 1);
}

// Folders that part what one process wrote, not processes.
bool holds_streams(const std::string& folder) {
  const std::string name = lower(folder);
  return name.starts_with("std") || name == "out" || name == "err" || name == "errors";
}

// "rank_3_2024-01-" before the day: years are no ranks.
bool ends_in_date(const std::string& before) {
  const size_t letters = before.find_last_not_of("0123456789-_.:T");
  const std::string tail = before.substr(letters == std::string::npos ? 0 : letters + 1);
  int64_t digits = 0;
  for (const char c : tail) digits += is_digit(c) ? 1 : 0;
  return digits >= 6;
}

// "nccl_trace_rank_node02_" before the rank that PyTorch appends: it is the node that has a number.
bool ends_in_host(const std::string& before) {
  const std::string name = without_separators(before);
  return !name.empty() && is_digit(name.back());
}

FileRank counted(const std::string& folder, const std::string& stem, const std::string& rest) {
  const auto last = number_at_end(without_count(stem));
  if (!last || counts_others(last->before)) return {};
  return {folder + "/" + last->before + rest, last->number};
}

}  // namespace

FileRank rank_in_name(const std::string& file) {
  const fs::path path(file);
  const std::string name = path.filename().string();
  if (const auto rank = rank_word(name)) return {"rank", *rank};
  const std::string folder = path.parent_path().filename().string();
  if (name.starts_with("std") || name.starts_with("error."))
    if (const auto rank = number_in<int64_t>(folder); rank && *rank >= 0 && *rank < kLogRankMost)
      return {path.parent_path().parent_path().string() + "/", *rank, true};
  if (name.starts_with("slurm-")) return {};
  const std::string parent = path.parent_path().string();
  if (number_at_end(name)) return counted(parent, name, "");
  return counted(parent, path.stem().string(), path.extension().string());
}

int64_t slurm_job_of(const std::string& path) {
  constexpr std::string_view kBegin = "slurm-";
  const std::string name = fs::path(path).filename().string();
  if (!name.starts_with(kBegin)) return -1;
  const size_t end = std::min(name.find_first_not_of("0123456789", kBegin.size()), name.size());
  if (end < name.size() && std::string_view("._-").find(name[end]) == std::string_view::npos)
    return -1;
  return number_in<int64_t>(std::string_view(name).substr(kBegin.size(), end - kBegin.size()))
      .value_or(-1);
}

std::map<std::string, FileRank> ranks_of_logs(const std::vector<std::string>& logs) {
  std::map<std::string, std::set<int64_t>> families;
  std::map<std::string, std::set<std::string>> folders;  // in which a name is
  for (const std::string& log : logs) {
    const fs::path path(log);
    if (!holds_streams(path.parent_path().filename().string()))
      folders[path.filename().string()].insert(path.parent_path().string());
    if (const FileRank named = rank_in_name(log); named.rank >= 0)
      families[named.family].insert(named.rank);
  }
  std::map<std::string, FileRank> ranks;
  for (const std::string& log : logs) {
    FileRank named = rank_in_name(log);
    if (named.rank < 0) continue;
    const std::set<int64_t>& all = families[named.family];
    const bool from_zero = all.size() > 1 && *all.begin() <= 1 &&
                           *all.rbegin() <= 2 * static_cast<int64_t>(all.size()) + 8;
    if (named.family != "rank" && !named.of_node && !from_zero) continue;
    const fs::path path(log);
    if (!named.of_node && folders[path.filename().string()].size() > 1)
      named = {path.parent_path().string(), named.rank, true};
    ranks[log] = named;
  }
  return ranks;
}

std::optional<int64_t> rank_of_dump(const std::string& path) {
  fs::path name = fs::path(path).filename();
  // "dump_r7.bin": any ending, but "dump.7" ends in its rank.
  const std::string ending = name.extension().string();
  if (std::none_of(ending.begin(), ending.end(), [](char c) { return is_digit(c); }))
    name = name.stem();
  const std::string stem = without_count(name.string());
  const auto word = rank_word(stem);
  const auto last = number_at_end(stem);
  if (const std::string folder = lower(fs::path(path).parent_path().filename().string());
      !word && !last && folder.starts_with("rank"))
    return rank_word(folder);
  if (last && !word && counts_others(last->before) && !ends_in_host(last->before))
    return std::nullopt;
  if (!last || (word && (counts_others(last->before) || ends_in_date(last->before)))) return word;
  return word && *word != last->number ? std::nullopt : std::optional(last->number);
}

}  // namespace lockstep
