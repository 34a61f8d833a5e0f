#include "scenarios/parse/expand.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "scenarios/files/image_files.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"
#include "scenarios/json/validator.h"
#include "scenarios/json/words.h"
#include "scenarios/parse/resolve.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

class Expander {
 public:
  Expander(const Json& document, const Matrix& matrix, const Places& places,
           const std::string& directory, const SuiteOptions& options)
      : base_(document),
        matrix_(matrix),
        places_(places),
        directory_(directory),
        options_(options) {
    base_.erase("matrix");
    base_.erase("exclude");
    for (const Axis& axis : matrix.axes) seen_.emplace_back(axis.values.size(), false);
  }

  void add(const Choice& choice, std::vector<Combination>* combinations) {
    if (full()) return;
    ++count_;
    Combination combination;
    Json document = base_;
    for (size_t a = 0; a < matrix_.axes.size(); ++a) {
      const Axis& axis = matrix_.axes[a];
      const Json& value = axis.values[choice[a]];
      std::string stuck;
      if (!pointer_set(&document, axis.pointer, value, &stuck))
        return report(choice, {axis.pointer, true,
                               fmt::format("the axis {} leads through {}, which is no object",
                                           printable(axis.pointer), printable(stuck)),
                               "the JSON pointer of a key"});
      combination.set.emplace_back(axis.pointer, value.dump());
    }
    const SchemaNode& schema = scenario_schema().root();
    auto problems = check_schema(schema, document);
    if (problems.empty() && is_new(choice)) ask_validator(document, &problems);
    if (problems.empty()) {
      fill_defaults(schema, &document);
      take_data_dir(&document["data"]);
      combination.scenario = to_scenario(document, directory_, &problems);
      check_trust(combination.scenario.model, &problems);
    }
    for (const SchemaProblem& problem : problems) report(choice, problem);
    if (problems.empty()) combinations->push_back(std::move(combination));
  }

  bool reads_data_dir() const { return reads_data_dir_; }

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

  // --data, where it has the files of this data set.
  void take_data_dir(Json* data) {
    const std::string kind = data->at("kind").get<std::string>();
    if (options_.data_dir.empty() || !is_image_file_kind(kind)) return;
    if (!has_image_files(kind, options_.data_dir, data->at("set").get<std::string>())) return;
    (*data)["path"] = options_.data_dir;
    reads_data_dir_ = true;
  }

  // Never loaded because a scenario says so: whoever runs it must have named the file.
  void check_trust(const Part& model, std::vector<SchemaProblem>* problems) const {
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

  // Our own check and valijson's are independent; a combination passes both, or there is a message.
  static void ask_validator(const Json& document, std::vector<SchemaProblem>* problems) {
    const auto complaint = validator_complaint(document);
    if (complaint) problems->push_back({"", false, "does not match the schema: " + *complaint, ""});
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
  const std::string& directory_;
  const SuiteOptions& options_;
  bool reads_data_dir_ = false;
  std::vector<std::vector<bool>> seen_;
  int64_t count_ = 0;
  std::map<std::pair<std::string, bool>, size_t> index_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<Combination> expand(const Json& document, const Matrix& matrix,
                                const std::vector<Choice>& choices, const Places& places,
                                const std::string& directory, const SuiteOptions& options,
                                bool* reads_data_dir, InputErrors* errors) {
  std::vector<Combination> combinations;
  combinations.reserve(choices.size());
  Expander expander(document, matrix, places, directory, options);
  for (const Choice& choice : choices) expander.add(choice, &combinations);
  *reads_data_dir = expander.reads_data_dir();
  const InputErrors found = expander.errors(choices);
  errors->insert(errors->end(), found.begin(), found.end());
  return combinations;
}

}  // namespace lockstep
