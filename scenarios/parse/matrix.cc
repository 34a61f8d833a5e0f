#include "scenarios/parse/matrix.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <tuple>

#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "scenarios/json/pointer.h"

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

namespace {

constexpr size_t kOpen = SIZE_MAX;  // of a choice: not decided yet

// splitmix64: small, and the same on every machine, which std::shuffle is not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  size_t below(size_t count) {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<size_t>((z ^ (z >> 31)) % count);
  }
  template <class T>
  void shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[below(i)]);
  }

 private:
  uint64_t state_;
};

// Is what is decided so far excluded, whatever comes?
bool is_excluded(const Matrix& matrix, const Choice& choice) {
  for (const Exclusion& exclusion : matrix.exclusions) {
    bool all = true;
    for (size_t a = 0; a < choice.size() && all; ++a) {
      if (!exclusion.mentions[a]) continue;
      all = choice[a] != kOpen && exclusion.matches[a][choice[a]];
    }
    if (all) return true;
  }
  return false;
}

// Goes on to the next choice over `axes`, the last one fastest; false after the last.
bool advance(const Matrix& matrix, const std::vector<size_t>& axes, Choice* choice) {
  for (size_t i = axes.size(); i > 0; --i) {
    size_t& value = (*choice)[axes[i - 1]];
    if (++value < matrix.axes[axes[i - 1]].values.size()) return true;
    value = 0;
  }
  return false;
}

// Pairs of values (a, u, b, v) of axes a < b that no combination holds yet.
using Pair = std::tuple<size_t, size_t, size_t, size_t>;

// The combinations for one choice of the axes in `each`.
class Pairwise {
 public:
  Pairwise(const Matrix& matrix, Choice fixed, std::vector<size_t> free, uint64_t seed)
      : matrix_(matrix), fixed_(std::move(fixed)), free_(std::move(free)), random_(seed) {}

  void choose(std::vector<Choice>* choices) {
    find_pairs();
    while (!open_.empty()) {
      Choice best;
      size_t most = 0;
      for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const Choice candidate = build();
        const size_t gain = covered(candidate);
        if (best.empty() || gain > most) std::tie(best, most) = std::tie(candidate, gain);
      }
      for_pairs(best, [&](const Pair& pair) { open_.erase(pair); });
      choices->push_back(std::move(best));
    }
  }

 private:
  static constexpr int kAttempts = 12;

  void find_pairs() {
    for (size_t i = 0; i < free_.size(); ++i)
      for (size_t j = i + 1; j < free_.size(); ++j)
        for (size_t u = 0; u < size(free_[i]); ++u)
          for (size_t v = 0; v < size(free_[j]); ++v) {
            Choice choice = fixed_;
            choice[free_[i]] = u;
            choice[free_[j]] = v;
            if (complete(&choice, free_, 0)) open_.insert({free_[i], u, free_[j], v});
          }
  }

  size_t size(size_t axis) const { return matrix_.axes[axis].values.size(); }

  template <class F>
  void for_pairs(const Choice& choice, F&& f) const {
    for (size_t i = 0; i < free_.size(); ++i)
      for (size_t j = i + 1; j < free_.size(); ++j)
        f(Pair{free_[i], choice[free_[i]], free_[j], choice[free_[j]]});
  }

  size_t covered(const Choice& choice) const {
    size_t count = 0;
    for_pairs(choice, [&](const Pair& pair) { count += open_.contains(pair) ? 1 : 0; });
    return count;
  }

  // Starts from an open pair and gives each other axis, in random order, the value that holds most
  // open pairs with those decided.
  Choice build() {
    Choice choice = fixed_;
    const auto [a, u, b, v] = *std::next(open_.begin(), random_.below(open_.size()));
    choice[a] = u;
    choice[b] = v;
    std::vector<size_t> order;
    for (const size_t axis : free_)
      if (choice[axis] == kOpen) order.push_back(axis);
    random_.shuffle(&order);
    complete(&choice, order, 0);  // possible: find_pairs saw it
    return choice;
  }

  size_t gain(const Choice& choice, size_t axis, size_t value) const {
    size_t count = 0;
    for (const size_t other : free_) {
      if (other == axis || choice[other] == kOpen) continue;
      const bool first = axis < other;
      count += open_.contains(first ? Pair{axis, value, other, choice[other]}
                                    : Pair{other, choice[other], axis, value})
                   ? 1
                   : 0;
    }
    return count;
  }

  // Decides the open axes from order[at] on, best value first, going back where all is excluded.
  bool complete(Choice* choice, const std::vector<size_t>& order, size_t at) {
    if (is_excluded(matrix_, *choice)) return false;
    while (at < order.size() && (*choice)[order[at]] != kOpen) ++at;
    if (at == order.size()) return true;
    const size_t axis = order[at];
    std::vector<std::pair<size_t, size_t>> values;  // gain, value
    const size_t start = random_.below(size(axis));
    for (size_t i = 0; i < size(axis); ++i) {
      const size_t value = (start + i) % size(axis);
      values.emplace_back(gain(*choice, axis, value), value);
    }
    std::stable_sort(values.begin(), values.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [unused, value] : values) {
      (*choice)[axis] = value;
      if (complete(choice, order, at + 1)) return true;
    }
    (*choice)[axis] = kOpen;
    return false;
  }

  const Matrix& matrix_;
  const Choice fixed_;
  const std::vector<size_t> free_;
  Random random_;
  std::set<Pair> open_;
};

}  // namespace

bool choose_combinations(const Matrix& matrix, uint64_t seed, std::vector<Choice>* choices) {
  std::vector<size_t> product, free;
  for (size_t a = 0; a < matrix.axes.size(); ++a)
    (matrix.pairwise && !matrix.axes[a].each ? free : product).push_back(a);
  if (free.size() == 1)
    product.insert(std::lower_bound(product.begin(), product.end(), free[0]), free[0]);
  if (free.size() < 2) free.clear();
  int64_t count = 1;
  for (const size_t a : product) {
    count *= static_cast<int64_t>(matrix.axes[a].values.size());
    if (count > kMostCombinations) return false;
  }
  Choice choice(matrix.axes.size(), kOpen);
  for (const size_t a : product) choice[a] = 0;
  uint64_t index = 0;
  do {
    if (static_cast<int64_t>(choices->size()) > kMostCombinations) return false;
    if (!free.empty())
      Pairwise(matrix, choice, free, substream_seed(seed, "matrix", index++)).choose(choices);
    else if (!is_excluded(matrix, choice))
      choices->push_back(choice);
  } while (advance(matrix, product, &choice));
  return true;
}

}  // namespace lockstep
