#include "scenarios/workloads/image_data.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "scenarios/files/image_files.h"

namespace lockstep {
namespace {

Part images(const std::string& kind, std::vector<double> mean, std::vector<double> std) {
  Part part{kind, {}};
  part.options.set("samples", int64_t{5});
  part.options.set("set", std::string("train"));
  part.options.set("seed", int64_t{3});
  part.options.set("mean", std::move(mean));
  part.options.set("std", std::move(std));
  part.options.set("target", std::string("label"));
  return part;
}

TEST(ImageData, PixelsAreNormalizedByChannel) {
  const Batch data = draw_data(images("cifar10", {0.5, 0.25, 0}, {0.5, 2, 1}), "float32");
  EXPECT_EQ(data.input.sizes(), (std::vector<int64_t>{5, 3, 32, 32}));
  EXPECT_EQ(data.target.scalar_type(), at::kLong);
  const ImageSet made = make_images("cifar10", "train", 5, 3);
  const auto pixel = [&](int64_t sample, int64_t channel) {
    return static_cast<float>(made.pixels[static_cast<size_t>((sample * 3 + channel) * 1024)]) /
           255;
  };
  for (const int64_t sample : {0, 4}) {
    const at::Tensor first = data.input[sample].flatten(1).select(1, 0);
    EXPECT_EQ(first[0].item<float>(), (pixel(sample, 0) - 0.5F) / 0.5F);
    EXPECT_EQ(first[1].item<float>(), (pixel(sample, 1) - 0.25F) / 2);
    EXPECT_EQ(first[2].item<float>(), pixel(sample, 2));
    EXPECT_EQ(data.target[sample].item<int64_t>(), made.labels[static_cast<size_t>(sample)]);
  }
}

TEST(ImageData, AnAutoencodersTargetIsItsInput) {
  Part part = images("mnist", {0}, {1});
  part.options.set("target", std::string("input"));
  const Batch data = draw_data(part, "float64");
  EXPECT_EQ(data.input.scalar_type(), at::kDouble);
  EXPECT_TRUE(data.target.equal(data.input.flatten(1)));
  const SampleSpec spec = sample_spec(part, "float64");
  EXPECT_EQ(spec.input_shape, (std::vector<int64_t>{1, 28, 28}));
  EXPECT_EQ(spec.target_shape, (std::vector<int64_t>{784}));
}

TEST(ImageData, FilesThatAreGoneSinceThePlanAreAnException) {
  Part part = images("mnist", {0}, {1});
  part.options.set("path", std::string("/nonexistent"));
  EXPECT_THROW(image_data(part), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
