#include "scenarios/parse/sets.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/words.h"

namespace lockstep {
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
      const std::string meant = printable("/" + pointer);
      return fail("", fmt::format("\"{}\" is not a JSON pointer", printable(pointer)),
                  pointer.empty() ? "/pointer=value" : fmt::format("{}=...", meant));
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

}  // namespace lockstep
