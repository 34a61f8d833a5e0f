#include "sim/report/earlier_result.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string key_of(const std::string& name, const std::string& label, const std::string& file) {
  return name + "\n" + label + "\n" + std::filesystem::path(file).filename().string();
}

InputError refused(const std::string& path, const std::string& why) {
  return option_error(fmt::format("--baseline {}: {}", path, why),
                      "what --json of an earlier invocation wrote");
}

std::string text_of_place(const InputError& error) {
  return fmt::format("{} in line {}", error.message, error.line);
}

bool is_run(const Json& run) {
  const auto is_text = [&](const char* key) { return run.contains(key) && run[key].is_string(); };
  return run.is_object() && is_text("name") && is_text("label") && is_text("file") &&
         run.contains("met") && (run["met"].is_boolean() || run["met"].is_null());
}

}  // namespace

Expected<EarlierResult> EarlierResult::load(const std::string& path) {
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) return refused(path, text.errors().front().message);
  const auto parsed = parse_foreign_json(text.value(), path, "");
  if (!parsed) return refused(path, text_of_place(parsed.errors().front()));
  const Json& document = parsed.value();
  if (!document.is_object() || !document.contains("runs") || !document["runs"].is_array())
    return refused(path, "no result of lockstep");
  EarlierResult earlier;
  for (const Json& run : document["runs"]) {
    if (!is_run(run)) return refused(path, "a run in it has no name, label, file or met");
    std::optional<bool> met;
    if (run["met"].is_boolean()) met = run["met"].get<bool>();
    const auto text_of = [&](const char* key) { return run[key].get<std::string>(); };
    const auto [place, fresh] =
        earlier.met_.emplace(key_of(text_of("name"), text_of("label"), text_of("file")), met);
    if (!fresh && met == true) place->second = met;  // of two alike, the one that excuses nothing
  }
  return earlier;
}

std::string EarlierResult::beside(const RunResult& run) const {
  const auto found = met_.find(key_of(run.name, run.label, run.file));
  if (found == met_.end()) return "absent";
  const std::optional<bool>& then = found->second;
  if (run.met == true) return then == true ? "same" : "fixed";
  if (then == true) return "regression";
  return then == run.met ? "known" : "changed";
}

}  // namespace lockstep
