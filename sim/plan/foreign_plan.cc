#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/schema.h"
#include "scenarios/manifest.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// No real run had more; each of them costs memory before anything of it is read.
constexpr int64_t kMostRanks = 65'536;

// Whatever this version writes of any plan.
bool has_keys_of(const Json& pattern, const Json& document) {
  if (!document.is_object()) return false;
  for (const auto& [key, value] : pattern.items()) {
    if (!document.contains(key)) return false;
    if (key == "scenario" && !has_keys_of(value, document[key])) return false;
  }
  return true;
}

// Collects what is wrong with values that the types alone do not tell.
class Ranges {
 public:
  explicit Ranges(const std::string& file) : file_(file) {}

  void within(const char* pointer, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      bad(pointer, fmt::format("{}", value), fmt::format("{} to {}", least, most));
  }
  void word(const char* pointer, const std::string& value, const std::vector<std::string>& words) {
    if (std::find(words.begin(), words.end(), value) == words.end())
      bad(pointer, "\"" + shortened(value) + "\"", "one of " + quoted_list(words));
  }
  void bad(const std::string& pointer, const std::string& value, const std::string& allowed) {
    if (errors_.size() >= kMostErrors) return;
    errors_.push_back({file_, 0, 0, pointer, fmt::format("{} is {}", pointer, value), allowed});
  }
  const InputErrors& errors() const { return errors_; }

 private:
  const std::string& file_;
  InputErrors errors_;
};

void check_numbers(const RunPlan& plan, Ranges* ranges) {
  constexpr int64_t kMost = int64_t{1} << 53;
  ranges->within("/scenario/world_size", plan.scenario.world_size, 1, kMostRanks);
  ranges->within("/start_step", plan.start_step, 0, plan.scenario.steps);
  ranges->within("/double_start_step", plan.double_start_step, 0, plan.scenario.steps);
  ranges->within("/resumed_world_size", plan.resumed_world_size, 0, kMostRanks);
  ranges->within("/compare_every", plan.compare_every, 1, kMost);
  ranges->within("/record_capacity", plan.record_capacity, 0, int64_t{1} << 32);
  ranges->within("/stream_slots", plan.stream_slots, 0, kMost);
  ranges->within("/replay/first_bucket_bytes", plan.replay.first_bucket_bytes, 0, kMost);
  ranges->within("/replay/bucket_cap_bytes", plan.replay.bucket_cap_bytes, 0, kMost);
  ranges->within("/replay/rebuild_after_step", plan.replay.rebuild_after_step, 0, kMost);
}

void check_words(const RunPlan& plan, Ranges* ranges) {
  const ReplayRule& rule = plan.replay;
  const std::vector<std::string> divisions = {"multiply_before", "divide_before", "divide_after",
                                              "none"};
  ranges->word("/replay/layout", rule.layout, {"registration", "one_bucket", "ddp"});
  ranges->word("/replay/division_first_step", rule.division_first_step, divisions);
  ranges->word("/replay/division_later", rule.division_later, divisions);
  ranges->word("/replay/added_as", rule.added_as, {"", "float16", "bfloat16"});
  for (const std::string& golden : plan.goldens)
    ranges->word("/goldens", golden, {"replay", "float64", "exact", "one_device"});
  for (const auto& [axis, value] : plan.set)
    if (json_or_discarded(value).is_discarded())
      ranges->bad("/set", "\"" + shortened(value) + "\"", "JSON text");
}

void check_layers(const RunPlan& plan, const std::optional<ModelManifest>& manifest,
                  Ranges* ranges) {
  if (plan.layer_times.empty()) return;
  const size_t layers = manifest ? manifest->layers.size() : 0;
  if (plan.layer_times.size() != layers)
    ranges->bad("/layer_times", fmt::format("{} layers", plan.layer_times.size()),
                fmt::format("{}, as the model has", layers));
  for (const LayerTime& time : plan.layer_times)
    for (const double ms : {time.forward_ms, time.backward_ms, time.ready_ms})
      if (!(ms >= 0 && ms <= 1e9))
        ranges->bad("/layer_times", fmt::format("{} ms", ms), "0 to 1e9 ms");
}

// Every parameter in one bucket at most.
void check_layout(const RunPlan& plan, const std::optional<ModelManifest>& manifest,
                  Ranges* ranges) {
  const auto parameters =
      manifest ? static_cast<int64_t>(manifest->parameters.size()) : INT64_MAX - 1;
  std::set<int64_t> seen;
  for (const auto& bucket : plan.layout_at_construction)
    for (const int64_t parameter : bucket)
      if (parameter < 0 || parameter >= parameters || !seen.insert(parameter).second)
        ranges->bad("/layout_at_construction", fmt::format("parameter {}", parameter),
                    fmt::format("0 to {}, each once", parameters - 1));
}

InputErrors schema_errors(const Json& scenario, const std::string& file) {
  InputErrors errors;
  for (const SchemaProblem& problem : check_schema(scenario_schema().root(), scenario))
    errors.push_back({file, 0, 0, "/scenario" + problem.pointer, problem.message, problem.allowed});
  return errors;
}

}  // namespace

Expected<RunPlan> read_foreign_plan(std::string_view text, const std::string& path) {
  const auto document = parse_foreign_json(text, path, "the plan of a kept run");
  if (!document) return document.errors();
  if (!has_keys_of(as_json(RunPlan{}), document.value()))
    return file_error(path, "was left by another version of lockstep");
  if (InputErrors errors = schema_errors(document.value()["scenario"], path); !errors.empty())
    return errors;
  RunPlan plan;
  try {
    plan = take_plan(document.value());
  } catch (const nlohmann::json::exception& error) {
    return file_error(path, printable(error.what()), "the plan of a kept run");
  }
  Ranges ranges(path);
  check_numbers(plan, &ranges);
  check_words(plan, &ranges);
  if (!ranges.errors().empty()) return ranges.errors();
  const auto manifest = manifest_of(plan.scenario.model, plan.scenario.dtype);
  check_layers(plan, manifest, &ranges);
  check_layout(plan, manifest, &ranges);
  if (!ranges.errors().empty()) return ranges.errors();
  return plan;
}

}  // namespace lockstep
