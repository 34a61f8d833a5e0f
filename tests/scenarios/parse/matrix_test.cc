#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>
#include <tuple>

#include "scenarios/parse/matrix.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Matrix matrix_of(const char* text) {
  const Json document = Json::parse(text);
  Matrix matrix;
  InputErrors errors;
  EXPECT_TRUE(read_matrix(document, {}, Places("f.json"), &matrix, &errors));
  return matrix;
}

std::vector<Choice> choices_of(const Matrix& matrix, uint64_t seed = 123) {
  std::vector<Choice> choices;
  EXPECT_TRUE(choose_combinations(matrix, seed, &choices));
  return choices;
}

std::string error_of_matrix(const char* text) {
  const Json document = Json::parse(text);
  Matrix matrix;
  InputErrors errors;
  read_matrix(document, {}, Places("f.json"), &matrix, &errors);
  return errors.empty() ? "" : to_text(errors[0]);
}

// (fixed values of `each`, axis, value, axis, value) of all combinations that `choices` hold.
using Held = std::set<std::tuple<Choice, size_t, size_t, size_t, size_t>>;
Held pairs_of(const Matrix& matrix, const std::vector<Choice>& choices) {
  Held held;
  for (const Choice& choice : choices) {
    Choice fixed;
    for (size_t a = 0; a < choice.size(); ++a)
      if (matrix.axes[a].each) fixed.push_back(choice[a]);
    for (size_t a = 0; a < choice.size(); ++a)
      for (size_t b = a + 1; b < choice.size(); ++b)
        if (!matrix.axes[a].each && !matrix.axes[b].each)
          held.insert({fixed, a, choice[a], b, choice[b]});
  }
  return held;
}

constexpr const char* kPairwise = R"({"matrix": {"pairwise": true, "each": ["/w"],
  "/w": [1, 2, 3], "/a": [1, 2, 3, 4, 5], "/b": ["x", "y", "z", "u"], "/c": [true, false],
  "/d": [0, 1, 2], "/e": [{"k": 1}, {"k": 2}]},
  "exclude": [{"/a": 1, "/b": "x"}, {"/e/k": 2, "/d": 0}, {"/w": 2, "/c": true, "/d": 1},
              {"/a": 5, "/c": true}, {"/a": 5, "/d": 2}]})";

TEST(Matrix, ProductInOrderTheLastAxisFastest) {
  const auto choices = choices_of(matrix_of(R"({"matrix": {"/a": [1, 2], "/b": [1, 2, 3]}})"));
  EXPECT_EQ(choices, (std::vector<Choice>{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}}));
  EXPECT_EQ(choices_of(matrix_of("{}")), std::vector<Choice>{{}});
}

TEST(Matrix, ExcludedCombinationsAreLeftOut) {
  const auto choices = choices_of(matrix_of(
      R"({"x": 7, "matrix": {"/a": [1, 2], "/b": [{"k": 1}, {"k": 2}]},
          "exclude": [{"/a": 1, "/b/k": 2}, {"/x": 8, "/a": 2}, {"/x": 7, "/a": 2, "/b/k": 1}]})"));
  EXPECT_EQ(choices, (std::vector<Choice>{{0, 0}, {1, 1}}));
}

// Against the full product: every pair that any allowed combination holds is held, nothing that is
// excluded is chosen, and it takes far fewer combinations.
TEST(Matrix, PairwiseHoldsEveryPairThatIsPossible) {
  Matrix pairwise = matrix_of(kPairwise);
  Matrix product = pairwise;
  product.pairwise = false;
  const auto all = choices_of(product);
  const std::set<Choice> allowed(all.begin(), all.end());
  for (const uint64_t seed : {1, 2, 3, 123}) {
    const auto choices = choices_of(pairwise, seed);
    EXPECT_EQ(pairs_of(pairwise, choices), pairs_of(product, all));
    for (const Choice& choice : choices) EXPECT_TRUE(allowed.contains(choice));
    EXPECT_LT(choices.size(), 90U);
    EXPECT_GE(choices.size(), 3 * 4 * 4U);
  }
}

TEST(Matrix, PairwiseFollowsTheSeedAndNothingElse) {
  const Matrix matrix = matrix_of(kPairwise);
  EXPECT_EQ(choices_of(matrix, 5), choices_of(matrix, 5));
  EXPECT_NE(choices_of(matrix, 5), choices_of(matrix, 6));
}

TEST(Matrix, PairwiseOfOneOrNoOtherAxisIsTheProduct) {
  EXPECT_EQ(choices_of(matrix_of(R"({"matrix": {"pairwise": true, "/a": [1, 2]}})")).size(), 2U);
  EXPECT_EQ(choices_of(matrix_of(R"({"matrix": {"pairwise": true, "each": ["/a"], "/a": [1, 2],
                                     "/b": [1, 2, 3]}})"))
                .size(),
            6U);
}

TEST(Matrix, TooManyCombinationsAreRefusedAtOnce) {
  Json document;
  for (int i = 0; i < 40; ++i)
    document["matrix"]["/axis" + std::to_string(i)] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<Choice> choices;
  EXPECT_FALSE(choose_combinations(matrix_of(document.dump().c_str()), 1, &choices));
}

TEST(Matrix, ErrorsNameAxisAndValue) {
  EXPECT_EQ(error_of_matrix(R"({"matrix": {"world_size": [1]}})"),
            "f.json: error: the axis \"world_size\" is not the JSON pointer of a key; expected an "
            "axis such as \"/world_size\"");
  EXPECT_EQ(error_of_matrix(R"({"matrix": {"/a": [1, 2, 1]}})"),
            "f.json: error: 1 is on the axis /a twice; expected every value once");
  EXPECT_EQ(error_of_matrix(R"({"matrix": {"/a": [{}], "/a/b": [1]}})"),
            "f.json: error: the axis /a/b lies inside the axis /a; expected axes that do not "
            "overlap");
  EXPECT_EQ(
      error_of_matrix(R"({"matrix": {"pairwise": true, "each": ["/b"], "/a": [1], "/c": [2]}})"),
      "f.json: error: \"/b\" is not an axis of the matrix; expected \"/a\" or \"/c\"");
  EXPECT_EQ(error_of_matrix(R"({"matrix": {"each": ["/a"], "/a": [1]}})"),
            "f.json: error: \"each\" means nothing without \"pairwise\": true");
  EXPECT_EQ(error_of_matrix(R"({"matrix": {"/a": [1]}, "exclude": [{"/a": 2}]})"),
            "f.json: error: 2 is not on the axis /a; expected a value of that axis");
  EXPECT_EQ(error_of_matrix(R"({"matrix": {"/a": [1]}, "exclude": [{"/b": 2}]})"),
            "f.json: error: /b is neither an axis nor in the scenario");
}

}  // namespace

}  // namespace lockstep
