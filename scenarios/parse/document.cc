#include "scenarios/parse/document.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/renamed.h"
#include "scenarios/parse/expand.h"
#include "scenarios/parse/matrix.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

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
std::vector<SchemaProblem> check_axes(const Schema& schema, const Json& document) {
  std::vector<SchemaProblem> problems;
  for (const char* key : {"matrix", "exclude", "full"}) {
    const auto found = document.find(key);
    if (found == document.end()) continue;
    const SchemaNode& node = *schema.root().key(key);
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
void expand_all(const Json& document, const SetEffects& effects, const Places& places,
                const DocumentKind& kind, InputErrors* errors) {
  Matrix matrix;
  const auto problems = check_axes(*kind.schema, document);
  add_errors(problems, places, errors);
  if (!problems.empty() || !read_matrix(document, effects, places, &matrix, errors)) {
    Json rest = document;  // its other errors as well, as far as they do not hang on the axes
    rest.erase("exclude");
    rest["matrix"] = {{"/seed", {1}}};
    add_errors(check_schema(kind.schema->root(), rest), places, errors);
    return;
  }
  std::vector<Choice> choices;
  InputError error = choose(document, matrix, &choices);
  if (!error.message.empty()) {
    places.locate("/matrix", true, &error);
    errors->push_back(error);
    return;
  }
  expand(document, matrix, choices, places, kind, errors);
}

InputErrors wrong_kind(const DocumentKind& kind, const Json& document, const Places& places) {
  InputErrors errors;
  std::optional<SchemaProblem> problem;
  if (!document.is_object())
    problem = SchemaProblem{"", false, fmt::format("the scenario is {}", value_text(document)),
                            "an object"};
  else if (kind.refuse)
    problem = kind.refuse(document);
  if (problem) add_errors({*problem}, places, &errors);
  return errors;
}

}  // namespace

std::string directory_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return absolute.lexically_normal().parent_path().string();
}

Expected<LoadedDocument> load_document(const std::string& path, const SuiteOptions& options,
                                       const DocumentKind& kind) {
  const auto bytes = read_foreign_file(path);
  if (!bytes) return bytes.errors();
  InputErrors errors;
  Json document(Json::value_t::discarded);
  LoadedDocument loaded{"", "", Places(printable(path)), false, {}};
  Places& places = loaded.places;
  read_json(bytes.value(), printable(path), &document, &places, &errors);
  if (document.is_discarded()) return errors;
  if (const InputErrors wrong = wrong_kind(kind, document, places); !wrong.empty())
    return errors.empty() ? wrong : errors;
  loaded.has_full = document.contains("full");
  const SetEffects effects = apply_sets(options, &document, &places, &errors);
  refuse_unseen_characters(document, "", places, &errors);
  loaded.notes = replace_old_words(places, &document);
  expand_all(document, effects, places, kind, &errors);
  if (!errors.empty()) {
    sort_errors(&errors);
    return errors;
  }
  loaded.name = text_of(document, "name");
  loaded.what = text_of(document, "what");
  return loaded;
}

}  // namespace lockstep
