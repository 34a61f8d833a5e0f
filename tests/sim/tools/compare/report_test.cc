#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <deque>
#include <limits>

#include "scenarios/json/schema.h"
#include "sim/report/document.h"
#include "sim/tools/compare/report.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class CompareDocumentTest : public ::testing::Test {
 protected:
  CheckpointTensor tensor(const std::string& name, const std::vector<float>& values) {
    memory_.push_back(values);
    CheckpointTensor made;
    made.name = name;
    made.shape = {static_cast<int64_t>(values.size())};
    made.strides = {1};
    made.first = reinterpret_cast<const std::byte*>(memory_.back().data());
    return made;
  }
  CompareDocument document(std::vector<CheckpointTensor> a, std::vector<CheckpointTensor> b) {
    Checkpoint x, y;
    x.tensors = std::move(a);
    y.tensors = std::move(b);
    CompareDocument made;
    made.a = "a.pt";
    made.b = "b.pt";
    made.files.push_back(
        {{"a.pt", "a.pt", "b.pt"}, "torch", "torch", compare_checkpoints(x, y, {})});
    conclude(&made);
    return made;
  }
  static std::string errors_of(const CompareDocument& document) {
    return schema_errors(compare_schema_text(), nlohmann::json::parse(as_json(document).dump()));
  }
  static std::string text(const CompareDocument& document, CompareTextOptions options = {}) {
    return compare_text(document, options, Style(false));
  }
  std::deque<std::vector<float>> memory_;
};

TEST_F(CompareDocumentTest, Equal) {
  const auto made = document({tensor("w", {1, 2})}, {tensor("w", {1, 2})});
  EXPECT_EQ(made.exit_code, kExitPass);
  EXPECT_EQ(errors_of(made), "");
  EXPECT_EQ(text(made, {.quiet = true}),
            "pass: 1 tensor, 2 elements compared bit for bit, 0 differ\n");
}

TEST_F(CompareDocumentTest, EveryKindOfDifference) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto made = document({tensor("w", {1, nan}), tensor("only\x1b[2J", {1}), tensor("s", {1})},
                             {tensor("w", {1, 2}), tensor("new", {1}), tensor("s", {1, 2})});
  EXPECT_EQ(made.exit_code, kExitFail);
  EXPECT_EQ(errors_of(made), "");
  const std::string all = text(made);
  EXPECT_THAT(all, HasSubstr("first difference  w float32 [2], element [1]\n      A  NaN"));
  EXPECT_THAT(all, HasSubstr("not finite; 1 of 2 elements differs"));
  EXPECT_THAT(all, HasSubstr("only in A  only?[2J\n"));
  EXPECT_THAT(all, HasSubstr("other shape  s A [1] B [2]\n"));
  EXPECT_THAT(all, EndsWith("fail: 4 of 4 tensors; exit 1\n"));
  EXPECT_THAT(text(made, {.verbose = true}), HasSubstr("only_b"));
}

TEST_F(CompareDocumentTest, NothingAndMissingFiles) {
  auto made = document({}, {});
  EXPECT_EQ(made.exit_code, kExitNothing);
  EXPECT_EQ(errors_of(made), "");
  made.files.push_back({{"x.pt", "a/x.pt", ""}, "torch", "", {}});
  conclude(&made);
  EXPECT_EQ(made.exit_code, kExitFail);
  EXPECT_EQ(errors_of(made), "");
  EXPECT_THAT(text(made), HasSubstr("x.pt (only in A)"));
}

TEST_F(CompareDocumentTest, TheSchemaSaysNo) {
  auto other = nlohmann::json::parse(as_json(document({}, {})).dump());
  other["files"][0]["surprise"] = 1;
  EXPECT_NE(schema_errors(compare_schema_text(), other), "");
}

}  // namespace

}  // namespace lockstep
