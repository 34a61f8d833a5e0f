#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/plan/rules.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/scenarios/part_of.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::string kMlp =
    R"(/model={"kind": "mlp", "in_features": 3, "hidden": [4, 4], "out_features": 2})";
const std::string kNorm =
    R"(/model={"kind": "batch_norm_mlp", "in_features": 3, "hidden": [4], "out_features": 2})";
const std::string kSmall = "/reducer/bucket_cap_mb=0.00001";

BucketLayout layout(const Strings& sets) {
  const auto plan = plan_of(sets);
  return plan ? plan.value().layout_at_construction : BucketLayout{};
}

TEST(WrappingCheck, IgnoredParametersAreInNoBucketUnlessAveragedByHand) {
  const std::string ignored = R"(/ignored=["fc1", "fc3.bias"])";
  EXPECT_EQ(layout({kMlp, ignored}), (BucketLayout{{2, 3, 4}}));
  EXPECT_EQ(layout({kMlp, ignored, R"(/frozen=["fc1.bias"])", "/reducer/average_ignored=true"}),
            (BucketLayout{{2, 3, 4}, {0}, {5}}));
}

TEST(WrappingCheck, EachModuleHasBucketsOfItsOwnTheLastFirst) {
  const std::string modules = R"(/wrapped_modules=["fc1", "fc2", "fc3"])";
  EXPECT_EQ(layout({kMlp, modules}), (BucketLayout{{4, 5}, {2, 3}, {0, 1}}));
  EXPECT_EQ(layout({kMlp, modules, kSmall, "/reducer/first_bucket_mb=0.00001",
                    "/reducer/find_unused_parameters=true"}),
            (BucketLayout{{5}, {4}, {3}, {2}, {1}, {0}}));
}

TEST(WrappingCheck, NamesMustNameSomething) {
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc"])"}), HasSubstr("the model has no \"fc\""));
  EXPECT_EQ(errors_of({kNorm, R"(/ignored=["bn1.running_mean"])"}), "");
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc1", "fc2", "fc3"])"}),
              HasSubstr("/ignored: nothing is left to the reducer"));
  EXPECT_THAT(errors_of({kMlp, "/reducer/average_ignored=true"}),
              HasSubstr("/reducer/average_ignored: no parameter that is trained is ignored"));
}

TEST(ParameterCheck, WhatCannotBeRunTwiceOrInAnotherOrderIsAMistake) {
  const auto mlp = [](const std::string& more) {
    return R"(/model={"kind": "mlp", "in_features": 3, "out_features": 2, )" + more + "}";
  };
  EXPECT_EQ(errors_of({mlp(R"("hidden": [4, 4], "repeat": 2)")}), "");
  EXPECT_EQ(errors_of({mlp(R"("hidden": [3, 2], "repeat": 2)")}), "");
  EXPECT_EQ(errors_of({mlp(R"("hidden": [3, 4], "repeat": 2)")}),
            "/model/repeat: no layer after the first has as many outputs as inputs; expected 1, or "
            "two equal widths in a row");
  const auto branches = [](const std::string& more) {
    return R"(/model={"kind": "branches", "in_features": 3, "out_features": 2, )" + more + "}";
  };
  EXPECT_EQ(errors_of({branches(R"("first": "by_sample")")}), "");
  EXPECT_EQ(errors_of({branches(R"("first": "by_sample", "unused": "always")"),
                       "/reducer/find_unused_parameters=true"}),
            "/model/first: an order of branches not all of which run; expected \"left\", or "
            "/model/unused \"none\"");
}

TEST(WrappingCheck, ModulesHoldEveryTensorOnce) {
  EXPECT_THAT(errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc2"])"}),
              HasSubstr("fc3.weight is in 0 of these modules"));
  EXPECT_THAT(errors_of({kNorm, R"(/wrapped_modules=["fc1", "fc2", "bn1.weight", "bn1.bias"])"}),
              HasSubstr("bn1.running_mean is in 0 of these modules"));
  EXPECT_THAT(errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc1.bias", "fc2", "fc3"])"}),
              HasSubstr("fc1.bias is in 2 of these modules"));
  EXPECT_THAT(errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc2", "fc3"])", R"(/frozen=["fc2"])"}),
              HasSubstr("\"fc2\" has no parameter for its reducer"));
}

TEST(WrappingCheck, BufferHooksTakeThePlaceOfABroadcast) {
  const std::string after = "/reducer/buffer_hook=average_after_forward";
  EXPECT_EQ(errors_of({kNorm, after}), "");
  EXPECT_THAT(errors_of({kMlp, after}), HasSubstr("the model has no buffers"));
  EXPECT_THAT(errors_of({kNorm, after, "/reducer/broadcast_buffers=false"}),
              HasSubstr("a hook in place of a broadcast that is off"));
  EXPECT_THAT(errors_of({kNorm, after, "/accumulate_steps=2"}),
              HasSubstr("average_before_forward, or accumulate_steps 1"));
}

TEST(WrappingCheck, OnlyDdpKindsHaveThem) {
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc1"])", "/reducer/kind=flat"}),
              HasSubstr("reducer \"flat\" has no parameters that are left alone"));
  EXPECT_THAT(
      errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc2", "fc3"])", "/reducer/kind=manual"}),
      HasSubstr("reducer bucketed or c10d"));
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc1"])", R"(/optimizer_sharding={"kind": "zero"})"}),
              HasSubstr("the optimizer is shared out"));
}

TEST(WrappingCheck, ALossTakesWhatIsReturned) {
  const std::string heads = R"(/model={"kind": "two_heads", "in_features": 3, "out_features": 2})";
  EXPECT_EQ(errors_of({heads}), "");
  EXPECT_THAT(errors_of({heads, "/model/returned=left"}), HasSubstr("/model/in_loss"));
  EXPECT_EQ(errors_of({heads, "/model/returned=left", "/model/in_loss=left"}), "");
}

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

// Errors of three parts together, "" if they fit.
std::string errors_of_parts(Part model, Part data, const char* loss) {
  Scenario scenario;
  scenario.model = std::move(model);
  scenario.data = std::move(data);
  scenario.loss.kind = loss;
  InputErrors errors;
  check_shapes(scenario, &errors);
  std::string all;
  for (const InputError& error : errors)
    all += (all.empty() ? "" : "\n") + error.pointer + ": " + error.message + "; " + error.allowed;
  return all;
}

const Part kConvnet = part_of("mnist_convnet", {{"classes", int64_t{10}}});
const Part kAutoencoder =
    part_of("autoencoder", {{"features", int64_t{784}}, {"hidden", int64_t{128}}});
const Part kGpt = part_of("gpt", {{"vocabulary", int64_t{61}},
                                  {"context", int64_t{12}},
                                  {"layers", int64_t{1}},
                                  {"heads", int64_t{2}},
                                  {"width", int64_t{8}}});

Part images(int64_t channels, int64_t side, int64_t classes, const char* target = "label") {
  return part_of("images", {{"channels", channels},
                            {"height", side},
                            {"width", side},
                            {"classes", classes},
                            {"target", std::string(target)}});
}

Part tokens(int64_t vocabulary, int64_t length) {
  return part_of("tokens", {{"vocabulary", vocabulary}, {"length", length}});
}

TEST(CheckShapes, WhatFitsPasses) {
  EXPECT_EQ(errors_of_parts(kConvnet, images(1, 28, 10), "cross_entropy"), "");
  EXPECT_EQ(errors_of_parts(kConvnet, images(1, 28, 3), "cross_entropy"), "");
  EXPECT_EQ(errors_of_parts(kAutoencoder, images(1, 28, 10, "input"), "mse"), "");
  EXPECT_EQ(errors_of_parts(kGpt, tokens(61, 12), "cross_entropy"), "");
}

TEST(CheckShapes, ModelsOfUsersAreNotChecked) {
  EXPECT_EQ(errors_of_parts({"their_own", {}}, images(1, 28, 10), "mse"), "");
}

TEST(CheckShapes, SampleMustSuitTheModel) {
  EXPECT_EQ(errors_of_parts(kConvnet, images(3, 28, 10), "cross_entropy"),
            "/data: a sample is [3, 28, 28], but model \"mnist_convnet\" takes [1, 28, 28]; "
            "[1, 28, 28]");
  EXPECT_EQ(errors_of_parts(kGpt, tokens(61, 13), "cross_entropy"),
            "/data: a sample is [13], but model \"gpt\" takes [12]; [12]");
  EXPECT_EQ(errors_of_parts(kGpt, tokens(62, 12), "cross_entropy"),
            "/data/vocabulary: /data/vocabulary is 62, but /model/vocabulary is 61; at most 61\n"
            "/data/classes: targets have 62 classes, but the model tells 61; at most 61");
  EXPECT_EQ(errors_of_parts(kConvnet, tokens(61, 784), "cross_entropy"),
            "/data/kind: data \"tokens\" gives tokens, but model \"mnist_convnet\" takes numbers; "
            "a data set that suits the model\n"
            "/data/classes: targets have 61 classes, but the model tells 10; at most 10\n"
            "/model/kind: the target of a sample is [784], but model \"mnist_convnet\" gives [10]; "
            "a model that gives classes for every target");
}

TEST(CheckShapes, LossMustSuitTheTargets) {
  EXPECT_EQ(errors_of_parts(kConvnet, images(1, 28, 10), "mse"),
            "/loss/kind: loss mse needs numbers, but data \"images\" has classes; "
            "\"cross_entropy\", or data with numbers");
  EXPECT_EQ(errors_of_parts(kAutoencoder, images(1, 28, 10, "input"), "cross_entropy"),
            "/loss/kind: loss cross_entropy needs classes, but data \"images\" has numbers; "
            "\"mse\", or data with classes");
  EXPECT_EQ(errors_of_parts(kConvnet, images(1, 28, 11), "cross_entropy"),
            "/data/classes: targets have 11 classes, but the model tells 10; at most 10");
  EXPECT_EQ(errors_of_parts(kConvnet, images(1, 28, 10, "input"), "mse"),
            "/data: the target of a sample is [784], but model \"mnist_convnet\" gives [10]; [10]");
}

}  // namespace

}  // namespace lockstep
