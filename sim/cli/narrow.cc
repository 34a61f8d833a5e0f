#include "sim/cli/narrow.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/conclude.h"
#include "sim/cli/run_directory.h"
#include "sim/judge/words.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kShardsMost = 4096;
constexpr const char* kFile = "last_failed.json";

// Absolute path, name, axes.
using RunKey = std::tuple<std::string, std::string, std::string>;

RunKey key_of(const std::string& file, const std::string& name, const std::string& label) {
  std::error_code ignored;
  return {fs::absolute(file, ignored).lexically_normal().string(), name, label};
}

RunKey key_of(const RunPlan& plan) {
  return key_of(plan.file, plan.scenario.name, label_of(plan.set));
}

uint64_t hash_of(const RunPlan& plan) {
  const std::string text = plan.scenario.name + "\n" + label_of(plan.set);
  return hash64(text.data(), text.size());
}

// Runs that failed last; what cannot be read counts as none.
std::vector<RunKey> read_failed() {
  for (const std::string& folder : state_folders()) {
    const auto text = read_foreign_file(folder + "/" + kFile);
    if (!text) continue;
    const Json document = json_or_discarded(text.value());
    std::vector<RunKey> keys;
    if (!document.is_object() || !document.contains("runs") || !document["runs"].is_array())
      return keys;
    for (const Json& run : document["runs"])
      if (run.is_array() && run.size() == 3 &&
          std::all_of(run.begin(), run.end(), [](const Json& word) { return word.is_string(); }))
        keys.emplace_back(run[0].get<std::string>(), run[1].get<std::string>(),
                          run[2].get<std::string>());
    return keys;
  }
  return {};
}

void write_failed(const std::vector<RunKey>& keys) {
  Json runs = Json::array();
  for (const auto& [file, name, label] : keys) runs.push_back({file, name, label});
  const std::string text = to_text(Json{{"schema_version", 1}, {"runs", std::move(runs)}});
  for (const std::string& folder : state_folders())
    if (make_private_folder(folder)) return write_atomically(folder + "/" + kFile, text);
}

template <class Keep>
void keep_plans(std::vector<SelectedFile>* files, Keep keep) {
  for (SelectedFile& file : *files)
    std::erase_if(file.plans, [&](const RunPlan& plan) { return !keep(plan); });
}

}  // namespace

Expected<Shard> parse_shard(const std::string& text) {
  const std::string_view words = text;
  const size_t slash = std::min(words.find('/'), words.size());
  const auto index = number_in<int64_t>(words.substr(0, slash));
  const auto count = number_in<int64_t>(words.substr(std::min(slash + 1, words.size())));
  if (index && count && *index >= 1 && *index <= *count && *count <= kShardsMost)
    return Shard{*index, *count};
  return option_error(fmt::format("--shard \"{}\" is no part of a whole", printable(text)),
                      fmt::format("I/N with 1 <= I <= N <= {}", kShardsMost));
}

void keep_shard(const Shard& shard, std::vector<SelectedFile>* files) {
  // Dealt out in the order of their hashes; of equal ones in the order of the selection.
  std::vector<std::pair<uint64_t, const RunPlan*>> all;
  for (const SelectedFile& file : *files)
    for (const RunPlan& plan : file.plans) all.emplace_back(hash_of(plan), &plan);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<const RunPlan*, bool> kept;
  for (size_t i = 0; i < all.size(); ++i)
    kept[all[i].second] = static_cast<int64_t>(i) % shard.count == shard.index - 1;
  for (SelectedFile& file : *files) {
    std::vector<RunPlan> plans;
    for (RunPlan& plan : file.plans)
      if (kept.at(&plan)) plans.push_back(std::move(plan));
    file.plans = std::move(plans);
  }
}

int64_t count_runs(const std::vector<SelectedFile>& files) {
  int64_t runs = 0;
  for (const SelectedFile& file : files) runs += static_cast<int64_t>(file.plans.size());
  return runs;
}

std::vector<std::string> keep_last_failed(std::vector<SelectedFile>* files) {
  const std::vector<RunKey> failed = read_failed();
  std::vector<std::string> kept;
  keep_plans(files, [&](const RunPlan& plan) {
    if (std::find(failed.begin(), failed.end(), key_of(plan)) == failed.end()) return false;
    const std::string label = label_of(plan.set);
    kept.push_back(plan.scenario.name + (label.empty() ? "" : " " + label));
    return true;
  });
  return kept;
}

void note_last_failed(const ResultDocument& document) noexcept {
  try {
    std::vector<RunKey> failed = read_failed();
    const std::vector<RunKey> before = failed;
    for (const RunResult& run : document.runs) {
      const RunKey key = key_of(run.file, run.name, run.label);
      std::erase(failed, key);
      if (run.met != true) failed.push_back(key);
    }
    std::error_code ignored;
    std::erase_if(failed,
                  [&](const RunKey& key) { return !fs::exists(std::get<0>(key), ignored); });
    if (failed != before) write_failed(failed);
  } catch (const std::exception&) {  // a convenience: the verdict stands without it
  }
}

}  // namespace lockstep
