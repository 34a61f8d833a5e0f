#include "scenarios/parse/make_scenario.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "scenarios/image_files.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"
#include "scenarios/parameter_list.h"
#include "scenarios/scenario.h"
#include "scenarios/scenario_schema.h"
#include "scenarios/split.h"
#include "scenarios/traced_layers.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Problems = std::vector<SchemaProblem>;

constexpr const char* kLibTorch = "/libtorch";  // in "when", beside pointers to keys

// A path that a scenario file gives, which is relative to the file.
std::string beside(const std::string& directory, const std::string& path) {
  return (std::filesystem::path(directory) / path).lexically_normal().string();
}

// Of keys alone: the version of LibTorch is known only when a worker has run.
bool holds(const Json& document, const std::string& place, const Json& when, Problems* problems) {
  bool all = true;
  for (const auto& [pointer, value] : when.items()) {
    const std::string here = pointer_join(place, pointer);
    const Json* at = pointer_find(document, pointer);
    if (pointer == kLibTorch) {
      if (!value.is_string() || !VersionRange::parse(value.get<std::string>()))
        problems->push_back({here, false, fmt::format("{} is no range of versions", value.dump()),
                             "bounds such as \"<2.4\" or \">=2.0 <2.4\""});
      continue;
    }
    if (!pointer_tokens(pointer) || pointer.empty())
      problems->push_back(
          {here, true, fmt::format("\"{}\" is not the JSON pointer of a key", printable(pointer)),
           "a pointer such as \"/reducer/kind\""});
    all = all && at != nullptr && *at == value;
  }
  return all;
}

Expectation pass_expected() {
  Expectation expect;
  expect.verdict = Verdict::pass;
  return expect;
}

// The path of a data set's files, absolute; returns their samples, if they are needed and good.
std::optional<int64_t> resolve_files(const std::string& directory, Part* data, Problems* problems) {
  if (!is_image_file_kind(data->kind) || !data->options.has("path")) return {};
  std::filesystem::path folder =
      (std::filesystem::absolute(directory) / data->options.text("path")).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // written with a slash at its end
  const std::string path = folder.string();
  data->options.set("path", path);
  const auto count = count_images(data->kind, path, data->options.text("set"));
  if (count) return count.value();
  for (const InputError& error : count.errors())
    problems->push_back({error.pointer, false, error.message, error.allowed});
  return {};
}

// Of a trace the bytes of gradients are known: a scenario of other ones would be another training.
void take_listed(const ParameterList& read, const std::string& dtype,
                 std::vector<std::string>* list, Problems* problems) {
  for (const ListedParameter& parameter : read.parameters) list->push_back(to_text(parameter));
  const std::string own = scenario_dtype(read.dtype);
  if (own.empty() || own == dtype) return;
  problems->push_back(
      {"/dtype", false,
       fmt::format("gradients of /model/file are {}, but the scenario's {}", read.dtype, dtype),
       fmt::format("\"{}\"", own)});
}

// The list itself, whichever of the two says it, so that a plan needs no file.
void resolve_parameters(const std::string& directory, const std::string& dtype, Part* model,
                        Problems* problems) {
  const bool has_file = model->options.has("file"), has_list = model->options.has("parameters");
  if (has_file == has_list) {
    problems->push_back(
        {"/model", false,
         has_file ? "both parameters and file are given" : "neither parameters nor file is given",
         "one of them"});
    return;
  }
  std::vector<std::string> list;
  std::set<std::string> names;
  if (has_file) {
    const auto read = read_parameter_list(beside(directory, model->options.text("file")));
    if (!read)
      for (const InputError& error : read.errors())
        problems->push_back({"/model/file", false, to_text(error), ""});
    else
      take_listed(read.value(), dtype, &list, problems);
  } else {
    list = model->options.texts("parameters");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const auto parameter = listed_parameter(list[i]);
    if (parameter && names.insert(parameter->name).second) continue;
    problems->push_back({has_file ? "/model/file" : fmt::format("/model/parameters/{}", i), false,
                         fmt::format("\"{}\" {}", printable(list[i]),
                                     parameter ? "is listed twice" : "is no parameter"),
                         fmt::format("a name and its shape (\"conv1.weight 64x3x7x7\"), {} "
                                     "numbers at most",
                                     kMostListedElements)});
  }
  if (!problems->empty()) return;
  Part resolved{model->kind, {}};
  for (const auto& [key, value] : model->options.all())
    if (key != "file") resolved.options.set(key, value);
  resolved.options.set("parameters", list);
  *model = std::move(resolved);
}

// batch_size and data.samples from whichever of the keys is given.
void resolve_batch(const Json& document, std::optional<int64_t> in_files, Scenario* scenario,
                   Problems* problems) {
  static const char* kKeys[] = {"batch_size", "batch_size_per_rank", "samples_per_rank"};
  std::string given;
  for (const char* key : kKeys) {
    if (!document.contains(key)) continue;
    if (!given.empty())
      problems->push_back({pointer_join("", key), true,
                           fmt::format("both {} and {} are given", given, key), "one of them"});
    given = key;
  }
  const Json* samples = pointer_find(document, "/data/samples");
  if (given.empty() && samples == nullptr && !in_files) {
    problems->push_back({"/batch_size", false, "the size of the batch is not given",
                         "batch_size, batch_size_per_rank, samples_per_rank or data.samples"});
    return;
  }
  if (given == "samples_per_rank" && samples != nullptr)
    problems->push_back(
        {"/data/samples", true, "both samples_per_rank and data.samples are given", "one of them"});
  if (samples != nullptr && in_files && samples->get<int64_t>() > *in_files)
    problems->push_back({"/data/samples", false,
                         fmt::format("/data/samples is {}, but the files of /data/path hold {}",
                                     samples->get<int64_t>(), *in_files),
                         fmt::format("at most {}", *in_files)});
  const int64_t all = samples != nullptr ? samples->get<int64_t>() : in_files.value_or(0);
  scenario->batch_size = given.empty() ? all : document[given].get<int64_t>();
  if (given == "batch_size_per_rank" || given == "samples_per_rank")
    scenario->batch_size *= scenario->world_size;
  const bool whole_files = in_files && given != "samples_per_rank";
  if (samples == nullptr)
    scenario->data.options.set("samples", whole_files ? *in_files : scenario->batch_size);
}

// From epochs, where those are given instead; batch and data are resolved.
void resolve_steps(const Json& document, Scenario* scenario, Problems* problems) {
  constexpr int64_t kMostSteps = 10'000'000;  // as the schema says of steps
  const bool by_epochs = document.contains("epochs");
  if (!by_epochs) {
    scenario->steps = document["steps"].get<int64_t>();
    return;
  }
  if (document.contains("steps"))
    problems->push_back({"/epochs", true, "both steps and epochs are given", "one of them"});
  const int64_t each = Split(*scenario).steps_per_epoch();
  scenario->steps = document["epochs"].get<int64_t>() * each;
  if (scenario->steps > kMostSteps)
    problems->push_back(
        {"/epochs", false,
         fmt::format("{} epochs of {} steps are too many", document["epochs"].get<int64_t>(), each),
         fmt::format("at most {} steps", kMostSteps)});
}

}  // namespace

std::vector<Expectation> select_expectations(const Json& document, Problems* problems) {
  const Json& expect = document["expect"];
  std::vector<Expectation> selected;
  const auto open = [&] { return selected.empty() || !selected.back().libtorch.empty(); };
  const auto consider = [&](const Json& entry, const std::string& place) {
    const bool held = holds(document, place, entry.value("when", Json::object()), problems);
    if (held && problems->empty() && open()) selected.push_back(expectation_from(entry));
  };
  if (expect.is_object()) consider(expect, "/expect/when");
  if (expect.is_array())
    for (size_t i = 0; i < expect.size(); ++i)
      consider(expect[i], fmt::format("/expect/{}/when", i));
  if (open()) selected.push_back(pass_expected());
  return selected;
}

Scenario to_scenario(const Json& document, const std::string& directory, Problems* problems) {
  Scenario s = scenario_as_written(document);
  const auto place = [&](Part* part, const char* key) {
    if (part->options.has(key)) part->options.set(key, beside(directory, part->options.text(key)));
  };
  if (s.model.kind == "torchscript") place(&s.model, "file");
  if (s.model.kind == "parameters") resolve_parameters(directory, s.dtype, &s.model, problems);
  place(&s.checkpoint, "path");
  place(&s.compute, "profile");
  place(&s.loss, "published");
  if (s.golden) s.golden = beside(directory, *s.golden);
  s.expect = select_expectations(document, problems);
  const size_t good_so_far = problems->size();
  const auto in_files = resolve_files(directory, &s.data, problems);
  if (problems->size() == good_so_far) resolve_batch(document, in_files, &s, problems);
  if (problems->empty()) resolve_steps(document, &s, problems);
  return s;
}

// --data, where it has the files of this data set.
void ScenarioMaker::take_data_dir(Json* data) {
  const std::string kind = data->at("kind").get<std::string>();
  if (options_.data_dir.empty() || !is_image_file_kind(kind)) return;
  if (!has_image_files(kind, options_.data_dir, data->at("set").get<std::string>())) return;
  (*data)["path"] = options_.data_dir;
  file_->reads_data_dir = true;
}

// Never loaded because a scenario says so: whoever runs it must have named the file.
void ScenarioMaker::check_trust(const Part& model, Problems* problems) const {
  if (model.kind != "torchscript" || !problems->empty()) return;
  namespace fs = std::filesystem;
  const std::string& file = model.options.text("file");
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    return problems->push_back({"/model/file", false,
                                fmt::format("{}: there is no such file", printable(file)),
                                "a file that torch.jit.save wrote"});
  for (const std::string& trusted : options_.trusted_models)
    if (fs::equivalent(file, trusted, error)) return;
  problems->push_back({"/model/file", false,
                       fmt::format("{} holds code, which loading it runs", printable(file)),
                       fmt::format("--trust-model {}, if you trust it", printable(file))});
}

// Our own check and valijson's are independent; a combination passes both, or there is a message.
void ScenarioMaker::take(Json document, std::vector<std::pair<std::string, std::string>> axes,
                         bool fresh, Problems* problems) {
  const auto complaint = fresh ? validator_complaint(document) : std::nullopt;
  if (complaint)
    return problems->push_back({"", false, "does not match the schema: " + *complaint, ""});
  fill_defaults(scenario_schema().root(), &document);
  take_data_dir(&document["data"]);
  Combination combination{to_scenario(document, directory_, problems), std::move(axes)};
  check_trust(combination.scenario.model, problems);
  if (problems->empty()) file_->combinations.push_back(std::move(combination));
}

}  // namespace lockstep
