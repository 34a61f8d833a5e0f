#include "sim/tools/program/collectives.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "scenarios/json/exact.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kBytesMost = 64 << 20;  // the agent writes 65,536 lines at most

// Throw nlohmann::json::exception.
TappedCall call_of(const Json& line) {
  TappedCall call;
  call.call = whole_number(line.at("call"));
  call.step = whole_number(line.at("step"));
  call.elements = whole_number(line.at("elements"));
  call.name = line.at("name").get<std::string>();
  call.input = whole_number(line.at("input"));
  call.result = whole_number(line.at("result"));
  const std::string type = line.at("dtype").get<std::string>();
  if (type == "float32") call.type = SumType::float32;
  if (type == "float64") call.type = SumType::float64;
  if (line.at("op").get<std::string>() != "sum") return call;
  if (call.name == "all_reduce") call.sum = SumKind::all_reduce;
  if (call.name == "reduce_scatter_tensor") call.sum = SumKind::reduce_scatter;
  return call;
}

std::string take_head(const Json& line, int64_t rank, TappedRank* found) {
  const std::string tap = line.at("tap").get<std::string>();
  if (tap != "hooks" && tap != "functions") return "its tap is unknown";
  found->tap = tap == "hooks" ? TapKind::hooks : TapKind::functions;
  found->torch = line.at("torch").get<std::string>();
  return whole_number(line.at("rank")) == rank ? "" : "it is of another rank";
}

std::string take(const Json& line, int64_t rank, TappedRank* found) {
  const std::string kind = line.at("kind").get<std::string>();
  found->ended = false;  // an end is the last line
  if (kind == "head") return take_head(line, rank, found);
  if (kind == "end") {
    found->collectives = whole_number(line.at("collectives"));
    found->bytes = whole_number(line.at("bytes"));
    found->ended = true;
    return "";
  }
  TappedGroup& group = found->groups[line.at("group").get<std::string>()];
  if (kind == "group") {
    get_exact(line.at("ranks"), group.ranks);
    return "";
  }
  if (kind != "collective") return "its kind is unknown";
  if (group.ranks.empty()) return "its group was not recorded before";
  group.calls.push_back(call_of(line));
  return "";
}

bool in_order(const TappedGroup& group) {
  const auto earlier = [](const TappedCall& a, const TappedCall& b) { return a.call < b.call; };
  return std::is_sorted(group.calls.begin(), group.calls.end(), earlier);
}

}  // namespace

const char* name_of(TapKind kind) {
  constexpr const char* kNames[] = {"none", "hooks", "functions"};
  return kNames[static_cast<size_t>(kind)];
}

Expected<TappedRank> read_tapped_rank(const std::string& folder, int64_t rank) {
  const std::string path = fmt::format("{}/collectives-{}.jsonl", folder, rank);
  TappedRank found;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return found;
  found.contributions = fmt::format("{}/contributions-{}.bin", folder, rank);
  const InputErrors errors =
      read_json_lines(path, "line of the agent", {kBytesMost},
                      [&](const Json& line) { return take(line, rank, &found); });
  if (!errors.empty()) return errors;
  // Calls of a group may overlap: what ended later is written later.
  for (auto& [name, group] : found.groups)
    if (!in_order(group))
      std::sort(group.calls.begin(), group.calls.end(),
                [](const TappedCall& a, const TappedCall& b) { return a.call < b.call; });
  return found;
}

}  // namespace lockstep
