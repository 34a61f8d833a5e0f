#include "sim/tools/soak/ledger.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>
#include <tuple>

#include "scenarios/base/text.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"
#include "sim/analysis/rate_bound.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLedgerBytesMost = int64_t{256} << 20;
constexpr int64_t kSeedMost = int64_t{1} << 53;
constexpr int64_t kCountMost = int64_t{1} << 40;  // so that those of all lines can be added up

// Throws nlohmann::json::exception. What is wrong; empty: the line is taken.
std::string take(const Json& line, SoakSlice* slice) {
  const SoakWorkRow* row = soak_work_of(line.at("work").get<std::string>());
  if (row == nullptr) return "has work that is none of " + soak_work_words();
  slice->work = row->work;
  const int64_t seed = whole_number(line.at("seed"));
  slice->seed = static_cast<uint64_t>(seed);
  slice->seeds = whole_number(line.at("seeds"));
  slice->counts.runs = whole_number(line.at("runs"));
  slice->counts.undecided = whole_number(line.at("undecided"));
  slice->duration_s = line.at("duration_s").get<double>();
  slice->commit = line.at("commit").get<std::string>();
  slice->libtorch = line.at("libtorch").get<std::string>();
  slice->broken = line.at("broken").get<std::string>();
  for (const Json& one : line.at("failures"))
    slice->counts.failures.push_back({one.at("name"), one.at("again")});
  const auto possible = [](int64_t count) { return count >= 0 && count <= kCountMost; };
  const bool counts = slice->seeds > 0 && possible(slice->seeds) && possible(slice->counts.runs) &&
                      possible(slice->counts.undecided);
  if (seed < 0 || seed > kSeedMost || !counts) return "has a seed or a count that none can be";
  if (!(slice->duration_s >= 0 && slice->duration_s < 1e9)) return "took no time that can be";
  return "";
}

auto identity(const SoakSlice& slice) {
  return std::tuple(slice.commit, slice.libtorch, slice.work, slice.seed, slice.seeds);
}

}  // namespace

std::string ledger_path(const std::string& folder) { return folder + "/ledger.jsonl"; }

Json as_json(const SoakSlice& slice) {
  Json failures = Json::array();
  for (const SoakFailure& one : slice.counts.failures)
    failures.push_back({{"name", one.name}, {"again", one.again}});
  return {{"work", row_of(slice.work).word},
          {"seed", slice.seed},
          {"seeds", slice.seeds},
          {"runs", slice.counts.runs},
          {"undecided", slice.counts.undecided},
          {"failures", std::move(failures)},
          {"broken", slice.broken},
          {"duration_s", slice.duration_s},
          {"commit", slice.commit},
          {"libtorch", slice.libtorch}};
}

Expected<std::vector<SoakSlice>> read_ledger(const std::string& folder) {
  const std::string path = ledger_path(folder);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::vector<SoakSlice>();
  std::vector<SoakSlice> slices;
  const InputErrors errors = read_json_lines(path, "is no line of a soak's ledger",
                                             {.bytes = kLedgerBytesMost}, [&](const Json& line) {
                                               SoakSlice slice;
                                               std::string wrong = take(line, &slice);
                                               if (wrong.empty())
                                                 slices.push_back(std::move(slice));
                                               return wrong;
                                             });
  if (!errors.empty()) return errors;
  return merged(std::move(slices));
}

std::vector<SoakSlice> merged(std::vector<SoakSlice> slices) {
  using Identity = decltype(identity(slices.front()));
  std::set<Identity> seen;
  std::erase_if(slices,
                [&](const SoakSlice& slice) { return !seen.insert(identity(slice)).second; });
  return slices;
}

std::vector<SoakTotal> totals(const std::vector<SoakSlice>& slices) {
  std::vector<std::pair<std::string, std::string>> builds;  // commit and LibTorch
  for (const SoakSlice& slice : slices) {
    const std::pair build(slice.commit, slice.libtorch);
    if (std::find(builds.begin(), builds.end(), build) == builds.end()) builds.push_back(build);
  }
  std::vector<SoakTotal> all;
  for (const auto& [commit, libtorch] : builds)
    for (const SoakWorkRow& row : soak_works()) {
      SoakTotal total;
      total.commit = commit;
      total.libtorch = libtorch;
      total.work = row.work;
      for (const SoakSlice& slice : slices) {
        if (slice.work != row.work || slice.commit != commit || slice.libtorch != libtorch)
          continue;
        ++total.slices;
        total.duration_s += slice.duration_s;
        if (!slice.broken.empty()) ++total.broken;
        total.runs += slice.counts.runs;
        total.undecided += slice.counts.undecided;
        total.failures += static_cast<int64_t>(slice.counts.failures.size());
      }
      if (total.slices > 0) all.push_back(std::move(total));
    }
  return all;
}

SoakTotal sum_of(const std::vector<SoakTotal>& totals) {
  SoakTotal sum;
  for (const SoakTotal& one : totals) {
    sum.slices += one.slices;
    sum.runs += one.runs;
    sum.failures += one.failures;
    sum.undecided += one.undecided;
    sum.broken += one.broken;
    sum.duration_s += one.duration_s;
  }
  return sum;
}

double rate_below_95(const SoakTotal& total) {
  if (total.failures > 0) return -1;
  return rate_bound_95(0, total.runs);
}

}  // namespace lockstep
