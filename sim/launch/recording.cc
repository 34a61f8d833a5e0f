#include "sim/launch/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

InputError refused_recording(const std::string& path, const std::string& message) {
  return file_error(path, message, "what scripts/lockstep_record.py leaves");
}

std::string description_path(const std::string& folder) { return folder + "/recording.json"; }

struct Description {
  std::string name;
  int64_t world_size = 0, hash_every = 0, hash_version = 1;
  bool tensors = false;
};

bool is_within(const Json& value, int64_t least, int64_t most) {
  return value.is_number_integer() && value >= least && value <= most;
}

Expected<Description> describe(const std::string& folder) {
  constexpr int64_t kMostRanks = 65'536, kMostSteps = int64_t{1} << 40;
  const std::string path = description_path(folder);
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  const Json json = json_or_discarded(text.value());
  if (!json.is_object() || json.value("format", Json()) != "lockstep_recording" ||
      json.value("version", Json()) != 1)
    return refused_recording(path, "is no recording of version 1");
  const Json ranks = json.value("world_size", Json()), name = json.value("name", Json());
  if (!is_within(ranks, 1, kMostRanks) || !name.is_string())
    return refused_recording(path, "lacks its name or its world size, 1 to 65536");
  const Json every = json.value("hash_every", Json()), hash = json.value("hash", Json(1)),
             tensors = json.value("tensors", Json(false));
  if (!is_within(every, 1, kMostSteps) || !is_within(hash, 1, INT32_MAX) || !tensors.is_boolean())
    return refused_recording(path, "does not say how it was hashed");
  return Description{name.get<std::string>(), ranks.get<int64_t>(), every.get<int64_t>(),
                     hash.get<int64_t>(), tensors.get<bool>()};
}

// Nothing: not what the recorder writes. At the end of a run there are no gradients.
std::optional<HashedStep::Tensors> tensors_of(const Json& line, const char* kind, bool at_end) {
  HashedStep::Tensors tensors;
  const auto found = line.find(kind);
  if (found == line.end() && at_end && std::string_view(kind) == "gradient") return tensors;
  if (found == line.end() || !found->is_object()) return std::nullopt;
  for (const auto& [name, hash] : found->items()) {
    if (!hash.is_string() || hash.get<std::string>().empty()) return std::nullopt;
    tensors.emplace_back(name, hash.get<std::string>());
  }
  return tensors;
}

// A line of a file of hashes.
Expected<bool> read_line(const std::string& line, const std::string& place, int64_t every,
                         RecordedRank* rank) {
  const Json json = json_or_discarded(line);
  if (!json.is_object() || !is_within(json.value("step", Json()), 0, INT32_MAX) ||
      !json.value("end", Json(false)).is_boolean())
    return refused_recording(place, "is no line of hashes");
  const bool at_end = json.value("end", false);
  HashedStep step;
  step.step = json["step"].get<int64_t>();
  for (size_t kind = 0; kind < HashedStep::kKinds.size(); ++kind) {
    auto tensors = tensors_of(json, HashedStep::kKinds.at(kind), at_end);
    if (!tensors) return refused_recording(place, "is no line of hashes");
    step.tensors.at(kind) = std::move(*tensors);
  }
  if (rank->end ||
      (!rank->hashed.empty() && step.step < rank->hashed.back().step + (at_end ? 0 : 1)))
    return refused_recording(place, "has steps in another order");
  if (!at_end && (step.step == 0 || step.step % every != 0))
    return refused_recording(place,
                             fmt::format("is of step {}, and hash_every is {}", step.step, every));
  if (at_end)
    rank->end = std::move(step);
  else
    rank->hashed.push_back(std::move(step));
  return true;
}

Expected<bool> read_hashes(const std::string& path, int64_t every, RecordedRank* rank) {
  auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) return text.errors();
  std::istringstream lines(std::move(text.value()));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    auto read = read_line(line, fmt::format("{}:{}", path, ++number), every, rank);
    if (!read) return read.errors();
  }
  return true;
}

Expected<RankRecords> records_of(const std::string& folder, int64_t rank, int64_t world_size) {
  RankRecords records;
  std::string why;
  const std::string path = fmt::format("{}/rank-{}.records", folder, rank);
  if (!read_records(path, &records, &why)) return refused_recording(path, why);
  if (records.rank != rank || records.world_size != world_size)
    return refused_recording(path,
                             fmt::format("is of rank {} of {}", records.rank, records.world_size));
  return records;
}

void add_records(const RankRecords& records, RecordedRank* rank) {
  auto hashed = rank->hashed.begin();
  for (const Event& event : records.events) {
    const auto kind = static_cast<EventKind>(event.kind);
    if (kind == EventKind::step_end)
      rank->last_step = std::max<int64_t>(rank->last_step, event.step);
    if (kind == EventKind::finished) rank->finished = true;
    if (kind != EventKind::state_hash || event.subject < 0 ||
        event.subject >= static_cast<int32_t>(HashedStep::kKinds.size()))
      continue;
    while (hashed != rank->hashed.end() && hashed->step < event.step) ++hashed;
    if (hashed != rank->hashed.end() && hashed->step == event.step)
      hashed->chains.at(static_cast<size_t>(event.subject)) = event.value;
  }
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
    auto records = records_of(folder, rank, description.value().world_size);
    if (!records) return records.errors();
    outcome.ranks.push_back(std::move(records.value()));
  }
  return outcome;
}

Expected<RecordedHashes> read_recorded_hashes(const std::string& folder) {
  const auto description = describe(folder);
  if (!description) return description.errors();
  const Description& said = description.value();
  RecordedHashes recording{
      folder, said.world_size, said.hash_every, said.hash_version, said.tensors, {}};
  for (int64_t number = 0; number < recording.world_size; ++number) {
    const auto records = records_of(folder, number, said.world_size);
    if (!records) return records.errors();
    RecordedRank rank;
    const std::string path = fmt::format("{}/rank-{}.hashes", folder, number);
    const auto read = read_hashes(path, said.hash_every, &rank);
    if (!read) return read.errors();
    add_records(records.value(), &rank);
    // The end of a step is recorded before it is hashed.
    const int64_t newest = rank.end              ? rank.end->step
                           : rank.hashed.empty() ? 0
                                                 : rank.hashed.back().step;
    if (newest > rank.last_step)
      return refused_recording(path, fmt::format("has hashes of step {}, and the rank's records "
                                                 "end after step {}",
                                                 newest, rank.last_step));
    recording.ranks.push_back(std::move(rank));
  }
  return recording;
}

std::string recorded_tensors_path(const std::string& folder, std::optional<int64_t> step) {
  return step ? fmt::format("{}/rank-0.step-{}.pt", folder, *step) : folder + "/rank-0.end.pt";
}

}  // namespace lockstep
