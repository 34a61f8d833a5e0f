#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <set>

#include "sim/worker/gradient_checks.h"

namespace lockstep {
namespace {

using ::testing::Pair;

MemorySpan span(uint64_t address, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                int64_t element_bytes = 4) {
  return {"", -1, address, element_bytes, std::move(sizes), std::move(strides)};
}

TEST(MemorySpans, NeighboursInOneBucketShareNothing) {
  EXPECT_FALSE(overlap(span(1000, {2, 3}, {3, 1}), span(1024, {2}, {1})));
  EXPECT_TRUE(overlap(span(1000, {2, 3}, {3, 1}), span(1020, {2}, {1})));
  EXPECT_TRUE(overlap(span(1020, {2}, {1}), span(1000, {2, 3}, {3, 1})));
}

TEST(MemorySpans, OneByteIsEnough) {
  EXPECT_TRUE(overlap(span(1000, {2}, {1}), span(1007, {8}, {1}, 1)));
  EXPECT_FALSE(overlap(span(1000, {2}, {1}), span(1008, {8}, {1}, 1)));
}

TEST(MemorySpans, ColumnsOfOneMatrixShareNothing) {
  EXPECT_FALSE(overlap(span(1000, {3}, {2}), span(1004, {3}, {2})));
  EXPECT_TRUE(overlap(span(1000, {3}, {2}), span(1008, {3}, {2})));
}

TEST(MemorySpans, AnotherMemoryFormatIsDense) {
  const MemorySpan channels_last = span(1000, {2, 3, 4, 5}, {60, 1, 15, 3});
  EXPECT_FALSE(overlaps_itself(channels_last));
  EXPECT_TRUE(overlap(channels_last, span(1476, {1}, {1})));
  EXPECT_FALSE(overlap(channels_last, span(1480, {1}, {1})));
}

TEST(MemorySpans, AnExpandedTensorOverlapsItselfAndTakesNoMoreThanItHas) {
  const MemorySpan expanded = span(1000, {4, 3}, {0, 1});
  EXPECT_TRUE(overlaps_itself(expanded));
  EXPECT_FALSE(overlap(expanded, span(1012, {3}, {1})));
  EXPECT_TRUE(overlap(expanded, span(1008, {3}, {1})));
  EXPECT_FALSE(overlaps_itself(span(1000, {}, {})));
  EXPECT_FALSE(overlaps_itself(span(1000, {1}, {0})));
}

TEST(MemorySpans, WithoutElementsNothingIsShared) {
  EXPECT_FALSE(overlap(span(1000, {0, 3}, {3, 1}), span(1000, {3}, {1})));
  EXPECT_EQ(first_overlap({span(0, {0}, {1}), span(0, {0}, {1})}), std::nullopt);
}

TEST(MemorySpans, TheFirstTwoAreNamedInTheirOwnOrder) {
  const std::vector<MemorySpan> spans = {span(2000, {9}, {1}), span(1000, {9}, {1}),
                                         span(2016, {1}, {1}), span(1004, {1}, {1})};
  EXPECT_THAT(first_overlap(spans), ::testing::Optional(Pair(0, 2)));
}

TEST(MemorySpans, EqualAddressesOnTwoDevicesAreTwoPlaces) {
  std::vector<MemorySpan> spans = {span(1000, {4}, {1}), span(1000, {4}, {1})};
  EXPECT_NE(first_overlap(spans), std::nullopt);
  spans[1].device = 1;
  EXPECT_EQ(first_overlap(spans), std::nullopt);
}

// Against sets of bytes.
TEST(MemorySpans, AnyTwoViewsOverlapWhereTheyShareAByte) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int64_t>(random() % n); };
  int shared = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::vector<MemorySpan> spans;
    std::vector<std::set<uint64_t>> bytes(2);
    for (int i = 0; i < 2; ++i) {
      spans.push_back(
          span(100 + below(40), {1 + below(3), 1 + below(3)}, {below(6), below(6)}, 1 + below(4)));
      for (int64_t x = 0; x < spans[i].sizes[0]; ++x)
        for (int64_t y = 0; y < spans[i].sizes[1]; ++y)
          for (int64_t byte = 0; byte < spans[i].element_bytes; ++byte)
            bytes[i].insert(spans[i].address + byte +
                            (x * spans[i].strides[0] + y * spans[i].strides[1]) *
                                spans[i].element_bytes);
    }
    bool expected = false;
    for (uint64_t byte : bytes[0]) expected = expected || bytes[1].contains(byte);
    ASSERT_EQ(overlap(spans[0], spans[1]), expected) << round;
    ASSERT_EQ(first_overlap(spans).has_value(), expected) << round;
    const auto elements = spans[0].sizes[0] * spans[0].sizes[1];
    ASSERT_EQ(overlaps_itself(spans[0]),
              static_cast<int64_t>(bytes[0].size()) < elements * spans[0].element_bytes);
    shared += expected;
  }
  EXPECT_GT(shared, 500);
}

TEST(LocalGradients, WhatIsMissingFromTheSumIsNamed) {
  Training training;
  StateLayout layout;
  for (const char* name : {"a", "b"}) {
    const auto place = static_cast<int64_t>(layout.entries.size());
    training.parameters.push_back({name, at::ones({2}).set_requires_grad(true)});
    layout.entries.push_back({StateKind::gradient, name, place, "float32", 2, 8, place * 64});
  }
  const at::Tensor& a = training.parameters[0].tensor;
  const at::Tensor& b = training.parameters[1].tensor;
  LocalGradients local(training, layout);
  EXPECT_EQ(local.lost(), "");  // nothing yet, and no gradient
  (a * 2 + b * 3).sum().backward();
  (a * 2).sum().backward();
  EXPECT_EQ(local.lost(), "");
  b.mutable_grad().zero_();
  EXPECT_EQ(local.lost(), "b");
  a.mutable_grad().reset();
  EXPECT_EQ(local.lost(), "a");
  local.clear();
  EXPECT_EQ(local.lost(), "");
}

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
