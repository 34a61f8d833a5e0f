#include "sim/worker/gradient_checks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace lockstep {
namespace {

class GradientChecks : public testing::Test {
 protected:
  GradientChecks()
      : path_(std::filesystem::temp_directory_path() / ("checks-" + std::to_string(getpid()))),
        recorder_(Recorder::create(path_, 0, 1, 64)),
        probe_(*recorder_) {
    Part model{"linear", {}};
    model.options.set("in_features", int64_t{3});
    model.options.set("out_features", int64_t{2});
    model.options.set("bias", true);
    training_.model = build_model(model, "float32");
    training_.parameters = training_.model->parameters();
    for (NamedTensor& parameter : training_.parameters)
      parameter.tensor.mutable_grad() = at::zeros_like(parameter.tensor);
    probe_.assigned(0, 0, 0);
    probe_.assigned(1, 0, 1);
    views(false);
    scenario_.reducer.options.set("find_unused_parameters", false);
    scenario_.reducer.options.set("static_graph", false);
  }
  ~GradientChecks() override { std::filesystem::remove(path_); }

  void views(bool on) {
    scenario_.reducer.kind = "bucketed";
    scenario_.reducer.options.set("gradient_as_bucket_view", on);
  }
  // Both gradients become parts of one bucket.
  void share() {
    const at::Tensor bucket = at::zeros({8});
    training_.parameters[0].tensor.mutable_grad() = bucket.narrow(0, 0, 6).view({2, 3});
    training_.parameters[1].tensor.mutable_grad() = bucket.narrow(0, 6, 2);
  }
  std::string aliasing() { return wrong_aliasing(scenario_, training_, probe_); }

  std::filesystem::path path_;
  std::unique_ptr<Recorder> recorder_;
  RecordingProbe probe_;
  Training training_;
  Scenario scenario_;
};

TEST_F(GradientChecks, ParametersThatShareMemoryAreNamed) {
  EXPECT_EQ(aliasing(), "");
  const at::Tensor memory = at::zeros({6});
  training_.parameters[0].tensor.set_data(memory.view({2, 3}));
  training_.parameters[1].tensor.set_data(memory.narrow(0, 0, 2));
  EXPECT_EQ(aliasing(), "weight and bias share memory");
}

TEST_F(GradientChecks, AnAbsentGradientIsNamedUnlessUnusedOnesAreLookedFor) {
  EXPECT_EQ(absent_gradient(scenario_, training_), "");
  training_.parameters[1].tensor.mutable_grad() = at::Tensor();
  EXPECT_EQ(absent_gradient(scenario_, training_), "bias has no gradient");
  scenario_.reducer.options.set("find_unused_parameters", true);
  EXPECT_EQ(absent_gradient(scenario_, training_), "");
}

TEST_F(GradientChecks, ViewsThatShareNoByteAreRightInAnyStorage) {
  EXPECT_EQ(aliasing(), "");
  share();
  EXPECT_EQ(aliasing(), "");
}

TEST_F(GradientChecks, GradientsThatOverlapAreNamed) {
  const at::Tensor bucket = at::zeros({8});
  training_.parameters[0].tensor.mutable_grad() = bucket.narrow(0, 0, 6).view({2, 3});
  training_.parameters[1].tensor.mutable_grad() = bucket.narrow(0, 5, 2);
  EXPECT_EQ(aliasing(), "the gradient of weight and the gradient of bias share memory");
  views(true);
  EXPECT_EQ(aliasing(), "the gradient of weight and the gradient of bias share memory");
}

TEST_F(GradientChecks, PartsOfParametersThatOverlapAreNamed) {
  const at::Tensor memory = at::zeros({7});
  training_.parameters[0].tensor.set_data(memory.narrow(0, 0, 6).view({2, 3}));
  training_.parameters[1].tensor.set_data(memory.narrow(0, 5, 2));
  EXPECT_EQ(aliasing(), "weight and bias share memory");
}

TEST_F(GradientChecks, AGradientInItsParametersMemoryIsNamed) {
  const at::Tensor weight = training_.parameters[0].tensor;
  training_.parameters[0].tensor.mutable_grad() = weight.detach();
  EXPECT_EQ(aliasing(), "weight and the gradient of weight share memory");
}

TEST_F(GradientChecks, AnExpandedGradientIsNamed) {
  training_.parameters[0].tensor.mutable_grad() = at::zeros({1, 3}).expand({2, 3});
  EXPECT_EQ(aliasing(), "elements of the gradient of weight share memory");
}

TEST_F(GradientChecks, OneTensorUnderTwoNamesIsOneParameter) {
  training_.parameters.push_back({"tied", training_.parameters[0].tensor});
  EXPECT_EQ(aliasing(), "");
}

TEST_F(GradientChecks, ViewsLieInTheirBucket) {
  views(true);
  EXPECT_EQ(aliasing(), "the gradient of bias is no view into its bucket");
  share();
  EXPECT_EQ(aliasing(), "");
  training_.parameters[1].tensor.mutable_grad() = at::zeros({2});
  scenario_.reducer.kind = "manual";  // has no buckets, whatever the option says
  EXPECT_EQ(aliasing(), "");
}

}  // namespace
}  // namespace lockstep
