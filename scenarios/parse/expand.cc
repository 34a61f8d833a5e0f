#include "scenarios/parse/expand.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <optional>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

class Expander {
 public:
  Expander(const Json& document, const Matrix& matrix, const Places& places,
           const DocumentKind& kind)
      : base_(document), matrix_(matrix), places_(places), kind_(kind) {
    base_.erase("matrix");
    base_.erase("exclude");
    for (const Axis& axis : matrix.axes) seen_.emplace_back(axis.values.size(), false);
  }

  void add(const Choice& choice) {
    if (full()) return;
    ++count_;
    Json document = base_;
    CombinationAxes set;
    for (size_t a = 0; a < matrix_.axes.size(); ++a) {
      const Axis& axis = matrix_.axes[a];
      const Json& value = axis.values[choice[a]];
      std::string stuck;
      if (!pointer_set(&document, axis.pointer, value, &stuck))
        return report(choice, {axis.pointer, true,
                               fmt::format("the axis {} leads through {}, which is no object",
                                           printable(axis.pointer), printable(stuck)),
                               "the JSON pointer of a key"});
      set.emplace_back(axis.pointer, value.dump());
    }
    auto problems = check_schema(kind_.schema->root(), document);
    if (problems.empty())
      kind_.take(std::move(document), std::move(set), is_new(choice), &problems);
    for (const SchemaProblem& problem : problems) report(choice, problem);
  }

  // Those of some combinations only name the first of these.
  InputErrors errors(const std::vector<Choice>& choices) const {
    InputErrors list;
    for (const Found& found : found_) {
      int64_t possible = 0;
      for (const Choice& choice : choices)
        possible += !found.axis || choice[*found.axis] == found.value ? 1 : 0;
      list.push_back(found.error);
      if (found.count < possible && !full())  // in how many of all is not known then
        list.back().message += fmt::format(" (with {})", found.combination);
    }
    return list;
  }

 private:
  struct Found {
    InputError error;
    std::optional<size_t> axis;  // the wrong value stands on this axis ...
    size_t value = 0;            // ... and is this one
    std::string combination;     // the first that has it
    int64_t count = 0;           // of combinations
    int64_t last = 0;            // number of the last one
  };

  // Enough is wrong for one reading: what is wrong with every combination costs as many.
  bool full() const { return found_.size() >= kMostErrors; }

  // Has this combination a value of an axis that none before it had?
  bool is_new(const Choice& choice) {
    bool fresh = matrix_.axes.empty();
    for (size_t a = 0; a < choice.size(); ++a) {
      fresh = fresh || !seen_[a][choice[a]];
      seen_[a][choice[a]] = true;
    }
    return fresh;
  }

  void report(const Choice& choice, const SchemaProblem& problem) {
    Found found;
    std::string place = problem.pointer;
    for (size_t a = 0; a < choice.size(); ++a) {
      const Axis& axis = matrix_.axes[a];
      found.combination += fmt::format("{}{}={}", a > 0 ? " " : "", printable(axis.pointer),
                                       value_text(axis.values[choice[a]]));
      if (!pointer_within(problem.pointer, axis.pointer)) continue;
      place = pointer_join("/matrix", axis.pointer);
      if (problem.about_key && problem.pointer == axis.pointer) continue;
      found.axis = a;
      found.value = choice[a];
      place = pointer_join(place, std::to_string(axis.indices[choice[a]])) +
              problem.pointer.substr(axis.pointer.size());
    }
    const auto [at, is_new] = index_.emplace(std::pair(place, problem.about_key), found_.size());
    if (is_new) {
      found.error = {"", 0, 0, printable(problem.pointer), problem.message, problem.allowed};
      places_.locate(place, problem.about_key, &found.error);
      found_.push_back(std::move(found));
    }
    Found& counted = found_[at->second];
    counted.count += counted.last == count_ ? 0 : 1;
    counted.last = count_;
  }

  Json base_;
  const Matrix& matrix_;
  const Places& places_;
  const DocumentKind& kind_;
  std::vector<std::vector<bool>> seen_;
  int64_t count_ = 0;
  std::map<std::pair<std::string, bool>, size_t> index_;
  std::vector<Found> found_;
};

}  // namespace

void expand(const Json& document, const Matrix& matrix, const std::vector<Choice>& choices,
            const Places& places, const DocumentKind& kind, InputErrors* errors) {
  Expander expander(document, matrix, places, kind);
  for (const Choice& choice : choices) expander.add(choice);
  const InputErrors found = expander.errors(choices);
  errors->insert(errors->end(), found.begin(), found.end());
}

}  // namespace lockstep
