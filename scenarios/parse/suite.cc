#include "scenarios/parse/suite.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/renamed.h"
#include "scenarios/json/schema.h"
#include "scenarios/parse/expand.h"
#include "scenarios/parse/matrix.h"
#include "scenarios/scenario_schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void report(const std::vector<SchemaProblem>& problems, const Places& places, InputErrors* errors) {
  for (const SchemaProblem& problem : problems) {
    InputError error{"", 0, 0, printable(problem.pointer), problem.message, problem.allowed};
    places.locate(problem.pointer, problem.about_key, &error);
    errors->push_back(std::move(error));
  }
}

// Whatever names something is printed sooner or later: no text holds what a terminal or a CI system
// would act on, or a reader would not see.
void refuse_unseen_characters(const Json& value, const std::string& pointer, const Places& places,
                              InputErrors* errors) {
  const auto check = [&](const std::string& text, const std::string& where, bool key) {
    if (errors->size() >= kMostErrors || printable(text) == text) return;
    InputError error{"",
                     0,
                     0,
                     printable(where),
                     fmt::format("\"{}\" holds a control character", shortened(text)),
                     "text in one line, without control characters"};
    places.locate(where, key, &error);
    errors->push_back(std::move(error));
  };
  if (value.is_string()) check(value.get_ref<const std::string&>(), pointer, false);
  if (!value.is_structured()) return;
  size_t index = 0;
  for (const auto& [name, member] : value.items()) {
    const std::string below =
        pointer_join(pointer, value.is_array() ? std::to_string(index++) : name);
    if (value.is_object()) check(name, below, true);
    refuse_unseen_characters(member, below, places, errors);
  }
}

// Deprecated words become the present ones; what was replaced, with its place.
InputErrors replace_old_words(const Places& places, Json* document) {
  InputErrors notes;
  for (const RenamedWord& word : replace_renamed_words(document)) {
    InputError note{"",
                    0,
                    0,
                    word.pointer,
                    fmt::format("\"{}\" is deprecated: write \"{}\"", word.old_word, word.new_word),
                    ""};
    places.locate(word.pointer, false, &note);
    notes.push_back(std::move(note));
  }
  return notes;
}

// "matrix", "exclude" and "full" as far as the schema goes; the rest is checked in every
// combination.
std::vector<SchemaProblem> check_axes(const Json& document) {
  std::vector<SchemaProblem> problems;
  for (const char* key : {"matrix", "exclude", "full"}) {
    const auto found = document.find(key);
    if (found == document.end()) continue;
    const SchemaNode& node = *scenario_schema().root().key(key);
    for (SchemaProblem& problem : check_schema(node, *found, pointer_join("", key)))
      problems.push_back(std::move(problem));
  }
  return problems;
}

uint64_t seed_of(const Json& document) {
  const auto found = document.find("seed");
  const bool given = found != document.end() && found->is_number_integer();
  return given ? found->get<uint64_t>() : kDefaultSeed;
}

std::string directory_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return absolute.lexically_normal().parent_path().string();
}

// Errors of the file in its order, those of the command line behind.
void sort_errors(InputErrors* errors) {
  std::stable_sort(errors->begin(), errors->end(), [](const InputError& a, const InputError& b) {
    const auto rank = [](const InputError& e) { return std::tuple(e.line == 0, e.line, e.column); };
    return rank(a) < rank(b);
  });
}

std::string text_of(const Json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

// Every combination is a copy of the document. The largest shipped matrix has 50,000 values in all.
constexpr size_t kMostExpanded = 20'000'000;

// No document is nested deeper than kDeepestNesting.
size_t values_in(const Json& value) {
  size_t count = 1;
  if (value.is_structured())
    for (const Json& member : value) count += values_in(member);
  return count;
}

// An error without a message: `choices` are made.
InputError choose(const Json& document, const Matrix& matrix, std::vector<Choice>* choices) {
  InputError error{"", 0, 0, "/matrix", "", ""};
  if (!choose_combinations(matrix, seed_of(document), choices)) {
    error.message = "the matrix has too many combinations";
    error.allowed = fmt::format("at most {}", kMostCombinations);
  } else if (choices->empty()) {
    error.message = "every combination of the matrix is excluded";
  } else if (const size_t values = values_in(document); choices->size() > kMostExpanded / values) {
    error.message = fmt::format("the matrix has {} combinations of a scenario of {} values",
                                choices->size(), values);
    error.allowed = fmt::format("at most {}", kMostExpanded / values);
  }
  return error;
}

// Several thousand runs at most: what is wrong with all of them is said once.
std::vector<Combination> combinations_of(const Json& document, const SetEffects& effects,
                                         const Places& places, const std::string& directory,
                                         const SuiteOptions& options, ScenarioFile* file,
                                         InputErrors* errors) {
  Matrix matrix;
  const auto problems = check_axes(document);
  report(problems, places, errors);
  if (!problems.empty() || !read_matrix(document, effects, places, &matrix, errors)) {
    Json rest = document;  // its other errors as well, as far as they do not hang on the axes
    rest.erase("exclude");
    rest["matrix"] = {{"/seed", {1}}};
    report(check_schema(scenario_schema().root(), rest), places, errors);
    return {};
  }
  std::vector<Choice> choices;
  InputError error = choose(document, matrix, &choices);
  if (!error.message.empty()) {
    places.locate("/matrix", true, &error);
    errors->push_back(error);
    return {};
  }
  return expand(document, matrix, choices, places, directory, options, &file->reads_data_dir,
                errors);
}

}  // namespace

Expected<ScenarioFile> load_scenario_file(const std::string& path, const SuiteOptions& options) {
  const auto bytes = read_foreign_file(path);
  if (!bytes) return bytes.errors();
  InputErrors errors;
  Json document(Json::value_t::discarded);
  Places places(printable(path));
  read_json(bytes.value(), printable(path), &document, &places, &errors);
  if (document.is_discarded()) return errors;
  if (!document.is_object()) {
    if (errors.empty())
      report({{"", false, fmt::format("the scenario is {}", value_text(document)), "an object"}},
             places, &errors);
    return errors;
  }
  ScenarioFile file;
  file.path = path;
  file.has_full = document.contains("full");
  const SetEffects effects = apply_sets(options, &document, &places, &errors);
  refuse_unseen_characters(document, "", places, &errors);
  file.notes = replace_old_words(places, &document);
  file.combinations =
      combinations_of(document, effects, places, directory_of(path), options, &file, &errors);
  if (!errors.empty()) {
    sort_errors(&errors);
    return errors;
  }
  file.name = text_of(document, "name");
  file.what = text_of(document, "what");
  file.places = places.all();
  file.options = places.options();
  return file;
}

namespace {

using Json = nlohmann::ordered_json;

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
