#include <gtest/gtest.h>

#include "scenarios/manifest.h"

namespace lockstep {
namespace {

Part mlp(std::vector<int64_t> hidden, bool bias) {
  Part part{"mlp", {}};
  part.options.set("in_features", int64_t{16});
  part.options.set("hidden", std::move(hidden));
  part.options.set("out_features", int64_t{8});
  part.options.set("activation", std::string("relu"));
  part.options.set("bias", bias);
  return part;
}

TEST(Manifest, NamesAndShapesInRegistrationOrder) {
  const auto manifest = manifest_of(mlp({24, 12}, true), "float32");
  ASSERT_TRUE(manifest);
  std::vector<std::string> names;
  for (const TensorSpec& parameter : manifest->parameters) names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
                                             "fc3.weight", "fc3.bias"}));
  EXPECT_EQ(manifest->parameters[2].shape, (std::vector<int64_t>{12, 24}));
  EXPECT_EQ(manifest->parameters[2].bytes(), 12 * 24 * 4);
  EXPECT_EQ(manifest_of(mlp({}, false), "float64")->parameters.at(0).bytes(), 16 * 8 * 8);
}

TEST(Manifest, LayersRegisteredBackwardsAreStillComputedForwards) {
  Part part = mlp({24, 12}, true);
  part.options.set("register", std::string("backwards"));
  const auto manifest = manifest_of(part, "float32");
  std::vector<std::string> names;
  for (const TensorSpec& parameter : manifest->parameters) names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fc3.weight", "fc3.bias", "fc2.weight", "fc2.bias",
                                             "fc1.weight", "fc1.bias"}));
  EXPECT_EQ(manifest->layers[0].name, "fc1");
  EXPECT_EQ(manifest->layers[0].parameters, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(manifest->layers[2].parameters, (std::vector<int64_t>{0, 1}));
}

TEST(Manifest, ModelsOfUsersAreNotKnown) {
  EXPECT_FALSE(manifest_of(Part{"their_own", {}}, "float32"));
}

}  // namespace

}  // namespace lockstep
