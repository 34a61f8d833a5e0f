#include <gtest/gtest.h>

#include "sim/plan/plan.h"
#include "sim/plan/rules.h"
#include "tests/scenarios/part_of.h"

namespace lockstep {
namespace {

// Errors of three parts together, "" if they fit.
std::string errors_of(Part model, Part data, const char* loss) {
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
  EXPECT_EQ(errors_of(kConvnet, images(1, 28, 10), "cross_entropy"), "");
  EXPECT_EQ(errors_of(kConvnet, images(1, 28, 3), "cross_entropy"), "");
  EXPECT_EQ(errors_of(kAutoencoder, images(1, 28, 10, "input"), "mse"), "");
  EXPECT_EQ(errors_of(kGpt, tokens(61, 12), "cross_entropy"), "");
}

TEST(CheckShapes, ModelsOfUsersAreNotChecked) {
  EXPECT_EQ(errors_of({"their_own", {}}, images(1, 28, 10), "mse"), "");
}

TEST(CheckShapes, SampleMustSuitTheModel) {
  EXPECT_EQ(errors_of(kConvnet, images(3, 28, 10), "cross_entropy"),
            "/data: a sample is [3, 28, 28], but model \"mnist_convnet\" takes [1, 28, 28]; "
            "[1, 28, 28]");
  EXPECT_EQ(errors_of(kGpt, tokens(61, 13), "cross_entropy"),
            "/data: a sample is [13], but model \"gpt\" takes [12]; [12]");
  EXPECT_EQ(errors_of(kGpt, tokens(62, 12), "cross_entropy"),
            "/data/vocabulary: /data/vocabulary is 62, but /model/vocabulary is 61; at most 61\n"
            "/data/classes: targets have 62 classes, but the model tells 61; at most 61");
  EXPECT_EQ(errors_of(kConvnet, tokens(61, 784), "cross_entropy"),
            "/data/kind: data \"tokens\" gives tokens, but model \"mnist_convnet\" takes numbers; "
            "a data set that suits the model\n"
            "/data/classes: targets have 61 classes, but the model tells 10; at most 10\n"
            "/model/kind: the target of a sample is [784], but model \"mnist_convnet\" gives [10]; "
            "a model that gives classes for every target");
}

TEST(CheckShapes, LossMustSuitTheTargets) {
  EXPECT_EQ(errors_of(kConvnet, images(1, 28, 10), "mse"),
            "/loss/kind: loss mse needs numbers, but data \"images\" has classes; "
            "\"cross_entropy\", or data with numbers");
  EXPECT_EQ(errors_of(kAutoencoder, images(1, 28, 10, "input"), "cross_entropy"),
            "/loss/kind: loss cross_entropy needs classes, but data \"images\" has numbers; "
            "\"mse\", or data with classes");
  EXPECT_EQ(errors_of(kConvnet, images(1, 28, 11), "cross_entropy"),
            "/data/classes: targets have 11 classes, but the model tells 10; at most 10");
  EXPECT_EQ(errors_of(kConvnet, images(1, 28, 10, "input"), "mse"),
            "/data: the target of a sample is [784], but model \"mnist_convnet\" gives [10]; [10]");
}

}  // namespace
}  // namespace lockstep
