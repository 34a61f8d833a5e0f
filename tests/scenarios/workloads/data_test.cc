#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <stdexcept>

#include "scenarios/image_files.h"
#include "scenarios/workloads/data.h"

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

constexpr int64_t kSteps = 9;

Loader::Options options_of(int64_t workers, bool ordered) {
  Loader::Options options;
  options.workers = workers;
  options.first_step = 2;
  options.last_step = kSteps;
  options.ordered = ordered;
  options.indices = [](int64_t step) { return std::vector<int64_t>{step, 10 * step}; };
  options.fetch = [](int64_t step, const std::vector<int64_t>& indices) {
    return Batch{at::full({1}, step), at::tensor(indices)};
  };
  return options;
}

std::vector<int64_t> steps_of(Loader& loader) {
  std::vector<int64_t> steps;
  for (int64_t step = 2; step <= kSteps; ++step) {
    const LoadedBatch loaded = loader.next();
    EXPECT_EQ(loaded.batch.input.item<int64_t>(), loaded.step);
    EXPECT_EQ(loaded.indices, (std::vector<int64_t>{loaded.step, 10 * loaded.step}));
    EXPECT_EQ(loaded.batch.target[1].item<int64_t>(), 10 * loaded.step);
    steps.push_back(loaded.step);
  }
  return steps;
}

TEST(Loader, StepsComeInTheirOrderWhateverTheWorkers) {
  for (const int64_t workers : {1, 2, 4, 7}) {
    Loader loader(options_of(workers, true));
    EXPECT_EQ(steps_of(loader), (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

// Step 3 has been handed over when its worker begins step 4.
TEST(Loader, AnOrderedBatchIsAwaitedThoughItsSuccessorIsThere) {
  std::promise<void> fourth;
  const std::shared_future<void> begun = fourth.get_future().share();
  Loader::Options options = options_of(2, true);
  options.fetch = [&](int64_t step, const std::vector<int64_t>& indices) {
    if (step == 2) begun.wait_for(std::chrono::seconds(20));
    if (step == 4) fourth.set_value();
    return Batch{at::full({1}, step), at::tensor(indices)};
  };
  Loader loader(std::move(options));
  EXPECT_EQ(steps_of(loader), (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Loader, ABatchThatIsLateComesAfterItsSuccessor) {
  for (const int64_t workers : {2, 4}) {
    Loader::Options options = options_of(workers, false);
    options.late = [](int64_t step) { return step == 2 || step == 5; };
    Loader loader(std::move(options));
    const std::vector<int64_t> steps = steps_of(loader);
    const auto place = [&](int64_t step) {
      return std::find(steps.begin(), steps.end(), step) - steps.begin();
    };
    EXPECT_LT(place(3), place(2));
    EXPECT_LT(place(6), place(5));
  }
}

TEST(Loader, MayBeLeftBeforeItsEnd) {
  Loader ordered(options_of(3, true));
  ordered.next();
  Loader::Options options = options_of(2, false);
  options.late = [](int64_t step) { return step % 2 == 0; };
  Loader late(std::move(options));  // a worker waits for a delivery that will not come
}

TEST(Loader, WhatFetchThrowsComesOut) {
  Loader::Options options = options_of(2, true);
  options.fetch = [](int64_t, const std::vector<int64_t>&) -> Batch {
    throw std::runtime_error("no such sample");
  };
  Loader loader(std::move(options));
  try {
    loader.next();
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("no such sample"), std::string::npos);
  }
}

}  // namespace

}  // namespace lockstep
