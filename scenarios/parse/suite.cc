#include "scenarios/parse/suite.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"
#include "scenarios/parse/document.h"
#include "scenarios/parse/make_scenario.h"
#include "scenarios/scenario_schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Such scenarios are read by sim/tools/program, for the verbs that take them.
std::optional<SchemaProblem> refuse_program(const Json& document) {
  if (!document.contains(kProgramKey)) return std::nullopt;
  return SchemaProblem{pointer_join("", kProgramKey), true,
                       "this is the scenario of a program, a training script",
                       "verify, run, sweep, scenario check or scenario list, of such files alone"};
}

}  // namespace

Expected<ScenarioFile> load_scenario_file(const std::string& path, const SuiteOptions& options) {
  ScenarioFile file;
  ScenarioMaker maker(directory_of(path), options, &file);
  const DocumentKind kind{.schema = &scenario_schema(),
                          .take =
                              [&](Json document, CombinationAxes axes, bool fresh,
                                  std::vector<SchemaProblem>* problems) {
                                maker.take(std::move(document), std::move(axes), fresh, problems);
                              },
                          .refuse = refuse_program};
  auto loaded = load_document(path, options, kind);
  if (!loaded) return loaded.errors();
  file.path = path;
  file.name = loaded.value().name;
  file.what = loaded.value().what;
  file.has_full = loaded.value().has_full;
  file.notes = std::move(loaded.value().notes);
  file.places = loaded.value().places.all();
  file.options = loaded.value().places.options();
  return file;
}

namespace {

class Setter {
 public:
  Setter(Json* document, Places* places, InputErrors* errors)
      : document_(document), places_(places), errors_(errors) {}

  void apply(const std::string& text) {
    label_ = printable("--set " + text);
    const size_t equals = text.find('=');
    if (equals == std::string::npos)
      return fail(printable(text), "this --set has no value", "/pointer=value");
    const std::string pointer = text.substr(0, equals);
    if (!pointer_tokens(pointer) || pointer.empty()) {
      return fail("", fmt::format("\"{}\" is not a JSON pointer", printable(pointer)),
                  meant_by(pointer));
    }
    put(pointer, parse(text.substr(equals + 1)));
  }

  // The block is taken out; its values are put in if they are wanted.
  void full(bool wanted) {
    const auto found = document_->find("full");
    if (found == document_->end() || !found->is_object() || found->empty()) return;
    const Json block = *found;
    document_->erase(found);
    for (const auto& [pointer, value] : block.items()) {
      if (!pointer_tokens(pointer) || pointer.empty()) {
        InputError error{"", 0, 0, printable(pointer), "", "a pointer such as \"/epochs\""};
        error.message = fmt::format("\"{}\" is not the JSON pointer of a key", printable(pointer));
        places_->locate(pointer_join("/full", pointer), true, &error);
        errors_->push_back(std::move(error));
        continue;
      }
      label_ = "--full " + printable(pointer);
      if (wanted) put(pointer, value);
    }
  }

  void seed(uint64_t seed) {
    label_ = fmt::format("--seed {}", seed);
    put("/seed", seed);
  }

  SetEffects effects;

 private:
  void fail(std::string pointer, std::string message, std::string allowed) {
    errors_->push_back({label_, 0, 0, std::move(pointer), std::move(message), std::move(allowed)});
  }

  static std::string meant_by(const std::string& pointer) {
    if (pointer.empty()) return "/pointer=value";
    if (pointer[0] != '/') return printable("/" + pointer) + "=...";
    return fmt::format("at most {} keys, with \"~0\" for ~ and \"~1\" for /", kDeepestNesting);
  }

  // JSON if it parses, else a string.
  static Json parse(const std::string& text) {
    Json value;
    InputErrors ignored;
    if (read_json(text, "", &value, nullptr, &ignored)) return value;
    return printable(text);
  }

  void put(const std::string& pointer, const Json& value) {
    // Two forms of one choice: the one that is put in takes the place of the other.
    if (pointer == "/steps") document_->erase("epochs");
    if (pointer == "/epochs") document_->erase("steps");
    const bool is_run = !pointer_within(pointer, "/matrix") && !pointer_within(pointer, "/exclude");
    if (is_run && put_into_axes(pointer, value)) return;
    std::string stuck;
    if (!pointer_set(document_, pointer, value, &stuck)) {
      const Json* at = pointer_find(*document_, stuck);
      const bool list = at != nullptr && at->is_array();
      return fail(printable(pointer),
                  fmt::format("{} cannot be set: {} is {}", printable(pointer), printable(stuck),
                              at == nullptr ? "absent" : value_text(*at)),
                  list ? fmt::format("an index from 0 to {}", at->size()) : "an object or a list");
    }
    places_->replace(pointer, label_);
  }

  // True if that was all: the value lies inside those of an axis.
  bool put_into_axes(const std::string& pointer, const Json& value) {
    const auto found = document_->find("matrix");
    if (found == document_->end() || !found->is_object()) return false;
    Json& matrix = *found;
    std::vector<std::string> axes;
    for (const auto& [axis, values] : matrix.items())
      if (axis.starts_with('/') && values.is_array()) axes.push_back(axis);
    size_t left = axes.size();
    for (const std::string& axis : axes) {
      if (pointer_within(axis, pointer)) {
        matrix.erase(axis);
        effects.pinned.insert(axis);
        --left;
      } else if (pointer_within(pointer, axis)) {
        change_values(axis, pointer.substr(axis.size()), value, &matrix[axis]);
        return true;
      }
    }
    if (left == 0 && !axes.empty()) document_->erase("matrix");
    return false;
  }

  void change_values(const std::string& axis, const std::string& rest, const Json& value,
                     Json* values) {
    effects.changed.insert(axis);
    for (size_t i = 0; i < values->size(); ++i) {
      std::string stuck;
      const std::string place = pointer_join(pointer_join("/matrix", axis), std::to_string(i));
      if (pointer_set(&(*values)[i], rest, value, &stuck))
        places_->replace(place + rest, label_);
      else
        fail(printable(axis + rest),
             fmt::format("{} is {}", printable(axis + stuck), value_text((*values)[i])),
             "an object or a list");
    }
  }

  Json* document_;
  Places* places_;
  InputErrors* errors_;
  std::string label_;
};

}  // namespace

SetEffects apply_sets(const SuiteOptions& options, Json* document, Places* places,
                      InputErrors* errors) {
  Setter setter(document, places, errors);
  setter.full(options.full);
  for (const std::string& set : options.sets) setter.apply(set);
  if (options.seed) setter.seed(*options.seed);
  return setter.effects;
}

namespace fs = std::filesystem;

Expected<std::vector<std::string>> find_scenario_files(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return file_error(printable(path), "no such file or directory");
  if (status.type() == fs::file_type::none)
    return file_error(printable(path), fmt::format("cannot be opened: {}", error.message()));
  if (!fs::is_directory(status)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  fs::recursive_directory_iterator at(path, error), end;
  for (; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    const std::string name = at->path().filename().string();
    if (name.ends_with(".json") && !name.ends_with("schema.json") && !at->is_directory(unreadable))
      files.push_back(at->path().string());
  }
  if (error) return file_error(printable(path), fmt::format("cannot be read: {}", error.message()));
  if (files.empty())
    return file_error(printable(path), "there is no scenario in this directory", "*.json files");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace lockstep
