#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/plan/plan.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kSparse = R"({
  "name": "t", "what": "t", "world_size": 2, "steps": 1, "batch_size": 4,
  "model": {"kind": "embedding", "vocabulary": 9, "sparse": true},
  "data": {"kind": "tokens", "vocabulary": 9, "length": 3},
  "loss": {"kind": "cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.1},
  "lanes": ["replay"]})";

Expected<RunPlan> plan(std::string_view text, const std::vector<std::string>& sets) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", text), {sets, {}});
  EXPECT_TRUE(file) << (file ? "" : to_text(file.errors()[0]));
  return make_plan(file.value().combinations[0].scenario);
}

std::vector<std::string> pointers(std::string_view text, const std::vector<std::string>& sets) {
  std::vector<std::string> found;
  const auto made = plan(text, sets);
  if (made) return found;
  for (const InputError& error : made.errors()) found.push_back(error.pointer);
  return found;
}

TEST(ParameterCheck, SparseGradientsStandAloneInTheLayout) {
  const auto made = plan(kSparse, {});
  ASSERT_TRUE(made);
  EXPECT_EQ(made.value().layout_at_construction, (BucketLayout{{1, 2}, {0}}));
}

TEST(ParameterCheck, SparseGradientsGoWithFewThings) {
  EXPECT_THAT(pointers(kSparse, {R"(/optimizer={"kind": "adagrad"})"}), IsEmpty());
  EXPECT_THAT(pointers(kSparse, {R"(/clipping={"kind": "norm", "max_norm": 1})"}),
              ElementsAre("/clipping"));
  EXPECT_THAT(pointers(kSparse, {R"(/optimizer={"kind": "adam"})"}),
              ElementsAre("/optimizer/kind"));
  EXPECT_THAT(pointers(kSparse, {"/optimizer/momentum=0.9", "/optimizer/weight_decay=0.1"}),
              ElementsAre("/optimizer/momentum", "/optimizer/weight_decay"));
  EXPECT_THAT(pointers(kSparse, {R"(/clipping={"kind": "value", "max_value": 1})"}),
              ElementsAre("/clipping"));
  EXPECT_THAT(pointers(kSparse, {R"(/comm_hook={"kind": "allreduce"})"}),
              ElementsAre("/comm_hook/kind"));
  EXPECT_THAT(pointers(kSparse, {R"(/join={"divide_by": "active_ranks"})"}),
              testing::Contains("/join"));
  EXPECT_THAT(pointers(kSparse, {"/model/sparse=false", "/optimizer/momentum=0.9",
                                 R"(/comm_hook={"kind": "allreduce"})"}),
              IsEmpty());
}

const std::string kMlp =
    R"(/model={"kind": "mlp", "in_features": 3, "hidden": [4, 4], "out_features": 2})";

TEST(ParameterCheck, FrozenNamesAreParametersOrLayers) {
  EXPECT_THAT(pointers(kScenario, {kMlp, R"(/frozen=["fc1", "fc2.bias"])"}), IsEmpty());
  EXPECT_THAT(pointers(kScenario, {kMlp, R"(/frozen=["fc"])"}), ElementsAre("/frozen/0"));
  EXPECT_THAT(pointers(kScenario, {kMlp, R"(/frozen=["fc1", "fc1.weights"])"}),
              ElementsAre("/frozen/1"));
  EXPECT_THAT(pointers(kScenario, {kMlp, R"(/frozen=["fc1", "fc2", "fc3"])"}),
              ElementsAre("/frozen"));
}

TEST(ParameterCheck, GradientsOfTwoDtypesNeverShareABucket) {
  const std::string two = R"(/model/float64_layers=[2])";
  const auto made = plan(kScenario, {kMlp, two});
  ASSERT_TRUE(made);
  EXPECT_EQ(made.value().layout_at_construction, (BucketLayout{{2, 3}, {0, 1, 4, 5}}));
  EXPECT_THAT(pointers(kScenario, {kMlp, R"(/model/float64_layers=[4])"}),
              ElementsAre("/model/float64_layers"));
}

TEST(ParameterCheck, MemoryFormatsAreOfRealLayersAndPiecesHaveNoGaps) {
  const std::string transposed = R"(/model/memory_format="transposed")";
  const std::string sliced = R"(/model/memory_format="sliced")";
  const std::string zero = R"(/optimizer_sharding={"kind": "zero"})";
  EXPECT_THAT(pointers(kScenario, {kMlp, transposed, zero}), IsEmpty());
  EXPECT_THAT(pointers(kScenario, {kMlp, sliced}), IsEmpty());
  for (const std::string& sharing : {zero, std::string("/reducer/kind=sharded")})
    EXPECT_THAT(pointers(kScenario, {kMlp, sliced, sharing}), ElementsAre("/model/memory_format"));
  EXPECT_THAT(
      pointers(kScenario, {kMlp, transposed,
                           R"(/compute={"kind": "emulated", "forward_ms": 1, "backward_ms": 2})"}),
      testing::Contains("/model/memory_format"));
}

TEST(ParameterCheck, DropoutIsOfRealLayersThatAreComputedOnce) {
  const std::string dropout = "/model/dropout=0.5";
  EXPECT_THAT(pointers(kScenario, {kMlp, dropout}), IsEmpty());
  EXPECT_THAT(
      pointers(kScenario, {kMlp, dropout,
                           R"(/compute={"kind": "emulated", "forward_ms": 1, "backward_ms": 2})"}),
      testing::Contains("/model/dropout"));
  EXPECT_THAT(pointers(kScenario, {kMlp, dropout, "/model/checkpointing=reentrant"}),
              ElementsAre("/model/dropout"));
}

TEST(ParameterCheck, FrozenParametersAreInNoBucket) {
  const auto made = plan(kScenario, {kMlp, R"(/frozen=["fc1"])"});
  ASSERT_TRUE(made);
  for (const auto& bucket : made.value().layout_at_construction)
    for (const int64_t parameter : bucket) EXPECT_GE(parameter, 2);
}

}  // namespace
}  // namespace lockstep
