#include "sim/tools/program/drill_recording.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/json/exact.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDrillBytesMost = int64_t{65} << 20;  // what the agent writes at most, and an end

// Throws nlohmann::json::exception, as all that follow.
RowPrints row_prints(const Json& list, size_t rows) {
  if (!list.is_array() || list.size() % 2 != 0 || list.size() / 2 != rows) return std::nullopt;
  for (const Json& value : list)
    if (!value.is_number()) return std::nullopt;
  return list.get<std::vector<double>>();
}

DrillTensor drill_tensor(const Json& line) {
  DrillTensor found;
  get_exact(line.at("shape"), found.shape);
  const auto rows = [&](size_t dimension) {
    return dimension < found.shape.size() ? static_cast<size_t>(found.shape[dimension]) : 1;
  };
  const Json& norms = line.at("norms");
  if (norms.is_array() && norms.size() == 4 &&
      std::all_of(norms.begin(), norms.end(), [](const Json& one) { return one.is_number(); }))
    found.norms = {norms[0].get<double>(), norms[1].get<double>(), norms[2].get<double>(),
                   norms[3].get<double>()};
  found.rows = row_prints(line.at("rows"), rows(0));
  if (line.contains("columns")) found.columns = row_prints(line.at("columns"), rows(1));
  return found;
}

DrillCall drill_call(const Json& line) {
  DrillCall found;
  found.name = line.at("name").get<std::string>();
  found.module = line.at("module").get<std::string>();
  found.kind = line.at("class").get<std::string>();
  found.line = line.at("line").get<std::string>();
  found.samples = whole_number(line.at("samples"));
  for (const Json& input : line.at("inputs"))
    found.inputs.push_back(static_cast<size_t>(whole_number(input)));
  for (const Json& output : line.at("outputs")) found.outputs.push_back(drill_tensor(output));
  for (const Json& whole : line.at("wholes"))
    found.wholes.push_back({whole.at("name").get<std::string>(),
                            whole.at("line").get<std::string>(), whole.at("kept").get<bool>(),
                            drill_tensor(whole)});
  found.numbers = line.at("numbers").get<std::vector<double>>();
  for (const Json& list : line.at("indices")) {
    const ElementNorms norms{list.at(1).get<double>(), list.at(2).get<double>(),
                             list.at(3).get<double>(), list.at(4).get<double>()};
    found.indices.push_back({{whole_number(list.at(0))}, norms, {}, {}});
  }
  return found;
}

DrillParameter drill_parameter(const Json& line) {
  DrillParameter found{line.at("name").get<std::string>(),
                       sketch_of(line.at("values")),
                       sketch_of(line.at("gradient")),
                       sketch_of(line.at("later")),
                       static_cast<size_t>(whole_number(line.at("later_call"))),
                       {}};
  for (const Json& user : line.at("users"))
    found.users.push_back(static_cast<size_t>(whole_number(user)));
  return found;
}

std::string take(const Json& line, DrillRank* rank) {
  const std::string kind = line.at("kind").get<std::string>();
  rank->ended = false;  // an end is the last line
  if (kind == "call") {
    rank->calls.push_back(drill_call(line));
    for (const size_t input : rank->calls.back().inputs)
      if (input + 1 >= rank->calls.size()) return "an input is of no call before it";
    return "";
  }
  if (kind == "gradient") {
    DrillGradient found{static_cast<size_t>(whole_number(line.at("call"))),
                        static_cast<size_t>(whole_number(line.at("output"))), drill_tensor(line)};
    rank->gradients.push_back(found);
    return found.call < rank->calls.size() && found.output < rank->calls[found.call].outputs.size()
               ? ""
               : "it is of no output of a call";
  }
  if (kind == "parameter") {
    rank->parameters.push_back(drill_parameter(line));
    for (const size_t user : rank->parameters.back().users)
      if (user >= rank->calls.size()) return "a user is no call";
    return "";
  }
  if (kind != "end") return "its kind is unknown";
  rank->why = line.at("why").get<std::string>();
  rank->ended = !rank->why.empty() ||
                whole_number(line.at("calls")) == static_cast<int64_t>(rank->calls.size());
  return "";
}

}  // namespace

const DrillParameter* parameter_of(const DrillRank& rank, const std::string& name) {
  for (const DrillParameter& one : rank.parameters)
    if (one.name == name) return &one;
  return nullptr;
}

Expected<DrillRank> read_drill_rank(const std::string& path) {
  DrillRank rank;
  const InputErrors errors = read_json_lines(path, "line of the agent", {kDrillBytesMost},
                                             [&](const Json& line) { return take(line, &rank); });
  if (!errors.empty()) return errors;
  return rank;
}

}  // namespace lockstep
