#include "sim/tools/soak/works.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/base/hash.h"
#include "scenarios/base/verdict.h"
#include "scenarios/json/json_text.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr int64_t kSchedules = 2000;  // of one explored training

Words campaign(Words which, uint64_t seed, const std::string& folder) {
  Words words = {"campaign", "--seed", std::to_string(seed), "--out", folder + "/runs"};
  words.insert(words.end(), which.begin(), which.end());
  return words;
}

Words of_mutants(uint64_t seed, int64_t seeds, const std::string& folder) {
  return campaign({"--mutants", std::to_string(seeds)}, seed, folder);
}

Words of_clean(uint64_t seed, int64_t seeds, const std::string& folder) {
  return campaign({"--clean", std::to_string(seeds)}, seed, folder);
}

Words of_faults(uint64_t seed, int64_t seeds, const std::string& folder) {
  return campaign({"--seeds", std::to_string(seeds)}, seed, folder);
}

Words of_stragglers(uint64_t seed, int64_t seeds, const std::string& folder) {
  return campaign({"--stragglers", "--seeds", std::to_string(seeds)}, seed, folder);
}

Words of_explore(uint64_t seed, int64_t seeds, const std::string& folder) {
  Words words = {"explore", "--schedules", std::to_string(kSchedules)};
  for (int64_t i = 0; i < seeds; ++i) {
    const Json document = explored_case(seed + static_cast<uint64_t>(i));
    const std::string file = fmt::format("{}/{}.json", folder, document["name"].get<std::string>());
    write_file(file, document.dump(2) + "\n");
    words.push_back(file);
  }
  return words;
}

SoakCounts count_mutants(const Json& document) {
  SoakCounts counts;
  for (const Json& kind : document.at("kinds")) counts.runs += whole_number(kind.at("runs"));
  for (const Json& one : document.at("not_caught"))
    if (one.at("end") != "equivalent")  // missed, or caught elsewhere
      counts.failures.push_back({one.at("name"), one.at("again")});
  return counts;
}

SoakCounts count_clean(const Json& document) {
  SoakCounts counts;
  counts.runs = whole_number(document.at("runs"));
  for (const Json& one : document.at("not_passed")) {
    if (one.at("verdict").get<Verdict>() == Verdict::fail)
      counts.failures.push_back({one.at("name"), one.at("again")});
    else
      ++counts.undecided;
  }
  return counts;
}

SoakCounts count_runs(const Json& document) {
  SoakCounts counts;
  for (const Json& run : document.at("runs")) {
    ++counts.runs;
    const Json& met = run.at("met");
    if (met.is_null())
      ++counts.undecided;
    else if (!met.get<bool>())
      counts.failures.push_back({run.at("name"), run.at("again")});
  }
  return counts;
}

SoakCounts count_schedules(const Json& document) {
  SoakCounts counts;
  for (const Json& one : document.at("scenarios")) {
    const Json& result = one.at("result");
    counts.runs += whole_number(result.at("explored"));
    const std::string name = one.at("name");
    for (const Json& finding : result.at("findings")) {
      const Json seed = finding.value("seed", Json());
      counts.failures.push_back(
          {name, fmt::format("lockstep explore failures/{}.json{}", name,
                             seed.is_null() ? "" : fmt::format(" --replay {}", seed.dump()))});
    }
    if (one.at("met").is_null()) ++counts.undecided;
  }
  return counts;
}

}  // namespace

const std::vector<SoakWorkRow>& soak_works() {
  static const std::vector<SoakWorkRow> rows = {
      {SoakWork::mutants, "mutants", "a random defect is caught at its step and tensor", 500, false,
       of_mutants, count_mutants},
      {SoakWork::clean, "clean", "a random correct training is not accused", 500, false, of_clean,
       count_clean},
      {SoakWork::explore, "explore", "under every schedule ranks have the bits of the golden run",
       1, false, of_explore, count_schedules},
      {SoakWork::faults, "faults", "a random fault is named with its rank", 40, true, of_faults,
       count_runs},
      {SoakWork::stragglers, "stragglers", "a late rank is named, and no rank if none is late", 20,
       true, of_stragglers, count_runs}};
  return rows;
}

const SoakWorkRow& row_of(SoakWork work) {
  for (const SoakWorkRow& row : soak_works())
    if (row.work == work) return row;
  LOCKSTEP_CHECK(false, "a kind of work without a row");
}

const SoakWorkRow* soak_work_of(std::string_view word) {
  for (const SoakWorkRow& row : soak_works())
    if (row.word == word) return &row;
  return nullptr;
}

std::string soak_work_words() {
  std::string words;
  for (const SoakWorkRow& row : soak_works())
    words += fmt::format("{}{}", words.empty() ? "" : ", ", row.word);
  return words;
}

Json explored_case(uint64_t seed) {
  uint64_t drawn = 0;
  const auto between = [&](int64_t least, int64_t most) {
    const auto span = static_cast<uint64_t>(most - least + 1);
    return least + static_cast<int64_t>(substream_seed(seed, "soak", drawn++) % span);
  };
  const int64_t world_size = between(2, 4);
  const char* kinds[] = {"bucketed", "c10d", "invariant"};
  const std::string kind = kinds[between(0, 2)];
  Json reducer = {{"kind", kind},
                  {"bucket_cap_mb", 0.0001 * static_cast<double>(between(1, 6))},
                  {"first_bucket_mb", 0.00005 * static_cast<double>(between(1, 4))}};
  const bool shards = kind == "invariant";
  if (shards) reducer["virtual_shards"] = 4 * between(1, 2);
  const char* optimizers[] = {"sgd", "adam"};
  const int64_t features = between(2, 10), targets = between(1, 6);
  return {{"name", fmt::format("explored-{}", seed)},
          {"what", "Drawn: under every schedule the bits of the golden run"},
          {"seed", seed},
          {"world_size", world_size},
          {"steps", between(1, 3)},
          {"batch_size", 8 * world_size},
          {"model",
           {{"kind", "mlp"},
            {"in_features", features},
            {"hidden", {between(2, 12), between(1, 8)}},
            {"out_features", targets}}},
          {"data",
           {{"kind", "randn"},
            {"samples", 16 * world_size},
            {"features", features},
            {"targets", targets}}},
          {"loss", {{"kind", "mse"}}},
          {"optimizer", {{"kind", optimizers[between(0, 1)]}, {"lr", 0.05}}},
          {"reducer", reducer},
          {"communicator", {{"kind", "local"}}},
          {"lanes", {"replica", shards ? "invariant" : "replay"}},
          {"expect", {{"verdict", "pass"}}}};
}

}  // namespace lockstep
