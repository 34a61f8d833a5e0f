#include "scenarios/parse/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/json/pointer.h"
#include "scenarios/json/words.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

class MatrixReader {
 public:
  MatrixReader(const Json& document, const SetEffects& effects, const Places& places,
               Matrix* matrix, InputErrors* errors)
      : document_(document), effects_(effects), places_(places), matrix_(matrix), errors_(errors) {}

  void read() {
    const auto found = document_.find("matrix");
    if (found != document_.end()) {
      matrix_->pairwise = found->value("pairwise", false);
      for (const auto& [pointer, values] : found->items())
        if (pointer != "pairwise" && pointer != "each") read_axis(pointer, values);
      check_overlap();
      if (found->contains("each")) read_each((*found)["each"]);
    }
    const auto excluded = document_.find("exclude");
    if (excluded == document_.end()) return;
    for (size_t i = 0; i < excluded->size(); ++i) read_exclusion(i, (*excluded)[i]);
  }

 private:
  void fail(const std::string& pointer, bool key, std::string message, std::string allowed) {
    InputError error{"", 0, 0, printable(pointer), std::move(message), std::move(allowed)};
    places_.locate(pointer, key, &error);
    errors_->push_back(std::move(error));
  }

  void read_axis(const std::string& pointer, const Json& values) {
    const std::string place = pointer_join("/matrix", pointer);
    const bool about_run =
        !pointer_within(pointer, "/matrix") && !pointer_within(pointer, "/exclude");
    if (!pointer_tokens(pointer) || pointer.empty() || !about_run)
      return fail(
          place, true,
          fmt::format("the axis \"{}\" is not the JSON pointer of a key", printable(pointer)),
          "an axis such as \"/world_size\"");
    Axis axis{pointer, false, {}, {}};
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::find(axis.values.begin(), axis.values.end(), values[i]) == axis.values.end()) {
        axis.values.push_back(values[i]);
        axis.indices.push_back(i);
      } else if (!effects_.changed.contains(pointer)) {
        fail(pointer_join(place, std::to_string(i)), false,
             fmt::format("{} is on the axis {} twice", value_text(values[i]), printable(pointer)),
             "every value once");
      }
    }
    matrix_->axes.push_back(std::move(axis));
  }

  void check_overlap() {
    for (const Axis& a : matrix_->axes)
      for (const Axis& b : matrix_->axes)
        if (&a != &b && pointer_within(a.pointer, b.pointer))
          fail(pointer_join("/matrix", a.pointer), true,
               fmt::format("the axis {} lies inside the axis {}", printable(a.pointer),
                           printable(b.pointer)),
               "axes that do not overlap");
  }

  Axis* axis_of(const std::string& pointer) {
    for (Axis& axis : matrix_->axes)
      if (axis.pointer == pointer) return &axis;
    return nullptr;
  }

  void read_each(const Json& each) {
    if (!matrix_->pairwise)
      return fail("/matrix/each", true, "\"each\" means nothing without \"pairwise\": true", "");
    for (size_t i = 0; i < each.size(); ++i) {
      const std::string pointer = each[i].get<std::string>();
      Axis* axis = axis_of(pointer);
      if (axis != nullptr) {
        axis->each = true;
      } else if (!effects_.pinned.contains(pointer)) {
        std::vector<std::string> known;
        for (const Axis& other : matrix_->axes) known.push_back(other.pointer);
        fail("/matrix/each/" + std::to_string(i), false,
             fmt::format("{} is not an axis of the matrix", value_text(each[i])),
             quoted_list(known));
      }
    }
  }

  void read_exclusion(size_t index, const Json& entry) {
    Exclusion exclusion;
    for (const Axis& axis : matrix_->axes) exclusion.matches.emplace_back(axis.values.size(), true);
    exclusion.mentions.assign(matrix_->axes.size(), false);
    bool possible = true;
    for (const auto& [pointer, value] : entry.items()) {
      const std::string place = pointer_join("/exclude/" + std::to_string(index), pointer);
      if (!pointer_tokens(pointer))
        fail(place, true, fmt::format("\"{}\" is not a JSON pointer", printable(pointer)), "");
      else if (!exclude_by_axis(pointer, value, place, &exclusion))
        possible = exclude_by_document(pointer, value, place) && possible;
    }
    if (possible) matrix_->exclusions.push_back(std::move(exclusion));
  }

  bool exclude_by_axis(const std::string& pointer, const Json& value, const std::string& place,
                       Exclusion* exclusion) {
    for (size_t a = 0; a < matrix_->axes.size(); ++a) {
      const Axis& axis = matrix_->axes[a];
      if (!pointer_within(pointer, axis.pointer)) continue;
      const std::string rest = pointer.substr(axis.pointer.size());
      bool any = false;
      for (size_t v = 0; v < axis.values.size(); ++v) {
        const Json* at = pointer_find(axis.values[v], rest);
        const bool same = at != nullptr && *at == value;
        any = any || same;
        if (!same) exclusion->matches[a][v] = false;
      }
      exclusion->mentions[a] = true;
      if (!any && !effects_.changed.contains(axis.pointer))
        fail(place, false,
             fmt::format("{} is not on the axis {}", value_text(value), printable(axis.pointer)),
             "a value of that axis");
      return true;
    }
    return false;
  }

  bool exclude_by_document(const std::string& pointer, const Json& value,
                           const std::string& place) {
    const Json* at = pointer_find(document_, pointer);
    const bool pinned =
        std::any_of(effects_.pinned.begin(), effects_.pinned.end(),
                    [&](const std::string& axis) { return pointer_within(pointer, axis); });
    if (at == nullptr && !pinned)
      fail(place, true,
           fmt::format("{} is neither an axis nor in the scenario", printable(pointer)), "");
    return at != nullptr && *at == value;
  }

  const Json& document_;
  const SetEffects& effects_;
  const Places& places_;
  Matrix* matrix_;
  InputErrors* errors_;
};

}  // namespace

bool read_matrix(const Json& document, const SetEffects& effects, const Places& places,
                 Matrix* matrix, InputErrors* errors) {
  const size_t before = errors->size();
  MatrixReader(document, effects, places, matrix, errors).read();
  return errors->size() == before;
}

}  // namespace lockstep
