#include "sim/launch/recording.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "sim/launch/files.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Tensors = HashedStep::Tensors;

InputError refused_recording(const std::string& path, const std::string& message) {
  return file_error(path, message, "what scripts/lockstep_record.py leaves");
}

std::string description_path(const std::string& folder) { return folder + "/recording.json"; }

struct Description {
  std::string name;
  int64_t world_size = 0;
};

Expected<Description> describe(const std::string& folder) {
  constexpr int64_t kMostRanks = 65'536;
  const std::string path = description_path(folder);
  const Json json = Json::parse(read_file(path), nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != "lockstep_recording" ||
      json.value("version", Json()) != 1)
    return refused_recording(path, "is no recording of version 1");
  const Json ranks = json.value("world_size", Json()), name = json.value("name", Json());
  if (!ranks.is_number_integer() || ranks < 1 || ranks > kMostRanks || !name.is_string())
    return refused_recording(path, "lacks its name or its world size, 1 to 65536");
  return Description{name.get<std::string>(), ranks.get<int64_t>()};
}

Expected<HashedStep> step_of(const std::string& line, const std::string& place) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.value("step", Json()).is_number_integer())
    return refused_recording(place, "is no line of hashes");
  HashedStep step;
  step.step = json["step"].get<int64_t>();
  for (size_t kind = 0; kind < HashedStep::kKinds.size(); ++kind) {
    const Json tensors = json.value(HashedStep::kKinds.at(kind), Json());
    if (!tensors.is_object()) return refused_recording(place, "is no line of hashes");
    for (const auto& [name, hash] : tensors.items()) {
      if (!hash.is_string()) return refused_recording(place, "is no line of hashes");
      step.tensors.at(kind).emplace_back(name, hash.get<std::string>());
    }
  }
  return step;
}

// A last line without an end is one that the process did not live to write.
Expected<std::vector<HashedStep>> read_steps(const std::string& path) {
  std::vector<HashedStep> steps;
  std::istringstream lines(read_file(path));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    auto step = step_of(line, fmt::format("{}:{}", path, ++number));
    if (!step) return step.errors();
    if (!steps.empty() && step.value().step <= steps.back().step)
      return refused_recording(path, "has steps in another order");
    steps.push_back(std::move(step.value()));
  }
  return steps;
}

struct Found {
  std::string tensor, a, b;
  int64_t compared = 0, differing = 0;
};

// Names of a in their order, then what only b has.
Found compare_tensors_of(const Tensors& a, const Tensors& b) {
  const std::map<std::string, std::string> others(b.begin(), b.end());
  std::set<std::string> known;
  Found found;
  const auto one = [&](const std::string& name, const std::string& x, const std::string& y) {
    ++found.compared;
    if (x == y) return;
    if (found.differing++ == 0) {
      found.tensor = name;
      found.a = x;
      found.b = y;
    }
  };
  for (const auto& [name, hash] : a) {
    const auto other = others.find(name);
    one(name, hash, other == others.end() ? "" : other->second);
    known.insert(name);
  }
  for (const auto& [name, hash] : b)
    if (!known.contains(name)) one(name, "", hash);
  return found;
}

// Of one step; adds to what is known of it.
void compare_steps(const HashedStep& a, const HashedStep& b, RecordedDivergence* divergence) {
  RecordedDivergence here;
  for (size_t kind = 0; kind < HashedStep::kKinds.size(); ++kind) {
    const Found found = compare_tensors_of(a.tensors.at(kind), b.tensors.at(kind));
    here.in_step += found.compared;
    here.differing += found.differing;
    if (found.differing == 0 || here.step != 0) continue;
    here.step = a.step;
    here.kind = HashedStep::kKinds.at(kind);
    here.tensor = found.tensor;
    here.a = found.a;
    here.b = found.b;
  }
  here.steps = divergence->steps + 1;
  here.tensors = divergence->tensors + here.in_step;
  if (divergence->step == 0) {
    *divergence = here;
  } else {
    divergence->steps = here.steps;
    divergence->tensors = here.tensors;
  }
}

RecordedDivergence compare_ranks(const std::vector<HashedStep>& a,
                                 const std::vector<HashedStep>& b) {
  RecordedDivergence divergence;
  auto other = b.begin();
  for (const HashedStep& step : a) {
    while (other != b.end() && other->step < step.step) ++other;
    if (other != b.end() && other->step == step.step) compare_steps(step, *other, &divergence);
  }
  return divergence;
}

}  // namespace

bool is_recording(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(description_path(folder), error);
}

Expected<RunOutcome> read_recorded_run(const std::string& folder) {
  const auto description = describe(folder);
  if (!description) return description.errors();
  RunOutcome outcome;
  outcome.run_dir = folder;
  outcome.plan.scenario.name = description.value().name;
  outcome.plan.scenario.world_size = description.value().world_size;
  for (int64_t rank = 0; rank < description.value().world_size; ++rank) {
    RankRecords records;
    std::string why;
    const std::string path = fmt::format("{}/rank-{}.records", folder, rank);
    if (!read_records(path, &records, &why)) return refused_recording(path, why);
    outcome.ranks.push_back(std::move(records));
  }
  return outcome;
}

Expected<RecordedHashes> read_recorded_hashes(const std::string& folder) {
  const auto description = describe(folder);
  if (!description) return description.errors();
  RecordedHashes recording;
  recording.folder = folder;
  recording.world_size = description.value().world_size;
  for (int64_t rank = 0; rank < recording.world_size; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.hashes", folder, rank);
    auto steps = read_steps(path);
    if (!steps) return steps.errors();
    if (steps.value().empty()) return refused_recording(path, "has no hashed step");
    recording.ranks.push_back(std::move(steps.value()));
  }
  return recording;
}

RecordedDivergence first_divergence(const RecordedHashes& a, const RecordedHashes& b) {
  return compare_ranks(a.ranks.front(), b.ranks.front());
}

RankDivergence divergence_of_ranks(const RecordedHashes& recording) {
  RankDivergence first;
  std::vector<std::vector<HashedStep>> ranks = recording.ranks;
  constexpr size_t kBuffers = 1;
  for (auto& steps : ranks)
    for (HashedStep& step : steps) step.tensors.at(kBuffers).clear();
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const RecordedDivergence found = compare_ranks(ranks.front(), ranks[rank]);
    if (found.step == 0 || (first.step != 0 && first.step <= found.step)) continue;
    first = {static_cast<int64_t>(rank), found.step, found.kind, found.tensor};
  }
  return first;
}

}  // namespace lockstep
