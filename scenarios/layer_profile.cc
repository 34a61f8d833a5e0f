#include "scenarios/layer_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "scenarios/base/foreign_file.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/schema.h"
#include "scenarios/json/schema_texts.h"
#include "scenarios/json/words.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Schema& profile_schema() {
  static const Schema schema(profile_schema_text());
  return schema;
}

std::string text_of_profile(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Whatever the order of the keys.
bool same_json(const std::string& a, const std::string& b) {
  return nlohmann::json::parse(a) == nlohmann::json::parse(b);
}

LayerProfile profile_of(const Json& json) {
  LayerProfile profile;
  profile.model = json["model"].dump();
  profile.dtype = json.value("dtype", "");
  profile.samples = json["samples"].get<int64_t>();
  profile.sample = json["sample"].get<std::vector<int64_t>>();
  profile.repetitions = json.value("repetitions", int64_t{1});
  profile.cpu = json.value("cpu", "");
  profile.libraries = json.value("libraries", "");
  for (const Json& layer : json["layers"])
    profile.layers.push_back({layer["layer"].get<std::string>(), layer["forward_ms"].get<double>(),
                              layer["backward_ms"].get<double>()});
  return profile;
}

}  // namespace

std::string profiled_model(const Scenario& scenario) { return as_json(scenario)["model"].dump(); }

std::string to_text(const LayerProfile& profile) {
  Json head;
  head["format"] = "lockstep_profile";
  head["version"] = 1;
  head["model"] = Json::parse(profile.model);
  head["dtype"] = profile.dtype;
  head["samples"] = profile.samples;
  head["sample"] = profile.sample;
  head["repetitions"] = profile.repetitions;
  head["cpu"] = profile.cpu;
  head["libraries"] = profile.libraries;
  std::string text = "{\n";
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  for (const auto& [key, value] : head.items())
    text += fmt::format("  \"{}\": {},\n", key, dump(value));
  text += "  \"layers\": [\n";
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerTime& time = profile.layers[i];
    const Json layer = {
        {"layer", time.layer}, {"forward_ms", time.forward_ms}, {"backward_ms", time.backward_ms}};
    text += fmt::format("    {}{}\n", dump(layer), i + 1 < profile.layers.size() ? "," : "");
  }
  return text + "  ]\n}\n";
}

Expected<LayerProfile> read_profile(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  return profile_from(text.value(), path);
}

Expected<LayerProfile> profile_from(const std::string& text, const std::string& path) {
  InputErrors errors;
  const std::string file = printable(path);
  Json document;
  Places places(file);
  if (!read_json(text, file, &document, &places, &errors)) return errors;
  for (const SchemaProblem& problem : check_schema(profile_schema().root(), document)) {
    InputError error{file, 0, 0, problem.pointer, problem.message, problem.allowed};
    places.locate(problem.pointer, problem.about_key, &error);
    errors.push_back(std::move(error));
  }
  if (!errors.empty()) return errors;
  return profile_of(document);
}

std::string problem_with(const LayerProfile& profile, const Scenario& scenario,
                         const ModelManifest& manifest) {
  const std::string model = profiled_model(scenario);
  if (!same_json(profile.model, model))
    return fmt::format("it was measured on model {}, but the scenario's is {}", profile.model,
                       model);
  const auto data = data_shape(scenario.data);
  if (data && data->input != profile.sample)
    return fmt::format("it was measured on samples of {}, but the scenario's are {}",
                       text_of_profile(profile.sample), text_of_profile(data->input));
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const std::string& name = manifest.layers[i].name;
    if (i < profile.layers.size() && profile.layers[i].layer == name) continue;
    return i < profile.layers.size()
               ? fmt::format("its layer {} is \"{}\", but the model's is \"{}\"", i,
                             profile.layers[i].layer, name)
               : fmt::format("it has {} layers, but the model has {}", i, manifest.layers.size());
  }
  if (profile.layers.size() == manifest.layers.size()) return "";
  return fmt::format("it has {} layers, but the model has {}", profile.layers.size(),
                     manifest.layers.size());
}

}  // namespace lockstep
