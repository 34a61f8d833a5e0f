#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = fmt::format("[{}]", fmt::join(shape, ", "));
  for (size_t at = text.find("-1"); at != std::string::npos; at = text.find("-1"))
    text.replace(at, 2, "any");
  return text;
}

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

// -1 fits any size; a wanted shape of one size takes any sample of so many numbers.
bool fits(const std::vector<int64_t>& given, const std::vector<int64_t>& wanted) {
  if (wanted.size() == 1 && wanted[0] >= 0) return numel(given) == wanted[0];
  bool good = given.size() == wanted.size();
  for (size_t i = 0; good && i < given.size(); ++i) good = wanted[i] < 0 || given[i] == wanted[i];
  return good;
}

class ShapeCheck : PartCheck {
 public:
  ShapeCheck(const Scenario& scenario, const DataShape& data, const ModelManifest& model,
             InputErrors* errors)
      : PartCheck(scenario, errors), data_(data), model_(model) {}

  void run() {
    const Options& model = s_.model.options;
    const Options& data = s_.data.options;
    if (data.has("features") && model.has("in_features"))
      same("/data/features", data.integer("features"), "in_features");
    else
      input();
    if (s_.loss.kind == "cross_entropy")
      classes();
    else if (data.has("targets") && model.has("out_features"))
      same("/data/targets", data.integer("targets"), "out_features");
    else
      numbers();
  }

 private:
  void same(const std::string& pointer, int64_t value, const char* of_model) {
    const int64_t wanted = s_.model.options.integer(of_model);
    if (value == wanted) return;
    fail(pointer, fmt::format("{} is {}, but /model/{} is {}", pointer, value, of_model, wanted),
         fmt::format("{}", wanted));
  }

  void input() {
    if ((data_.vocabulary > 0) != (model_.vocabulary > 0))
      return fail("/data/kind",
                  fmt::format("data \"{}\" gives {}, but model \"{}\" takes {}", s_.data.kind,
                              data_.vocabulary > 0 ? "tokens" : "numbers", s_.model.kind,
                              model_.vocabulary > 0 ? "tokens" : "numbers"),
                  "a data set that suits the model");
    if (data_.vocabulary > model_.vocabulary)
      fail("/data/vocabulary",
           fmt::format("/data/vocabulary is {}, but /model/vocabulary is {}", data_.vocabulary,
                       model_.vocabulary),
           fmt::format("at most {}", model_.vocabulary));
    if (!fits(data_.input, model_.input))
      fail("/data",
           fmt::format("a sample is {}, but model \"{}\" takes {}", text_of(data_.input),
                       s_.model.kind, text_of(model_.input)),
           text_of(model_.input));
  }

  void classes() {
    if (data_.classes == 0)
      return fail("/loss/kind",
                  fmt::format("loss cross_entropy needs classes, but data \"{}\" has numbers",
                              s_.data.kind),
                  "\"mse\", or data with classes");
    const int64_t known = model_.output.back();
    if (data_.classes > known)
      fail("/data/classes",
           fmt::format("targets have {} classes, but the model tells {}", data_.classes, known),
           fmt::format("at most {}", known));
    if (data_.target.size() + 1 != model_.output.size())
      fail("/model/kind",
           fmt::format("the target of a sample is {}, but model \"{}\" gives {}",
                       text_of(data_.target), s_.model.kind, text_of(model_.output)),
           "a model that gives classes for every target");
  }

  void numbers() {
    if (data_.classes > 0)
      return fail("/loss/kind",
                  fmt::format("loss {} needs numbers, but data \"{}\" has classes", s_.loss.kind,
                              s_.data.kind),
                  "\"cross_entropy\", or data with numbers");
    if (data_.target != model_.output)
      fail("/data",
           fmt::format("the target of a sample is {}, but model \"{}\" gives {}",
                       text_of(data_.target), s_.model.kind, text_of(model_.output)),
           text_of(model_.output));
  }

  const DataShape& data_;
  const ModelManifest& model_;
};

}  // namespace

void check_shapes(const Scenario& scenario, InputErrors* errors) {
  const auto data = data_shape(scenario.data);
  const auto model = manifest_of(scenario.model, scenario.dtype);
  if (data && model) ShapeCheck(scenario, *data, *model, errors).run();
}

}  // namespace lockstep
