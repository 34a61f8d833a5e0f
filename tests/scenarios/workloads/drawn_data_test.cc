#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "scenarios/workloads/workload.h"
#include "tests/golden/torch/scenarios.h"
#include "tests/scenarios/part_of.h"

namespace lockstep {
namespace {

const Part kImages = part_of("images", {{"samples", int64_t{9}},
                                        {"channels", int64_t{2}},
                                        {"height", int64_t{3}},
                                        {"width", int64_t{4}},
                                        {"classes", int64_t{5}},
                                        {"target", std::string("label")}});
const Part kTokens = part_of(
    "tokens", {{"samples", int64_t{50}}, {"vocabulary", int64_t{11}}, {"length", int64_t{6}}});
const Part kRouted = part_of("routed", {{"samples", int64_t{9}},
                                        {"features", int64_t{3}},
                                        {"targets", int64_t{2}},
                                        {"block", int64_t{2}}});
const Part kClasses = part_of(
    "classes", {{"samples", int64_t{60}}, {"features", int64_t{3}}, {"classes", int64_t{4}}});

TEST(DrawnData, IsAsItsSpecSays) {
  Part reconstruction = kImages;
  reconstruction.options.set("target", std::string("input"));
  for (const Part& part : {kImages, reconstruction, kTokens, kRouted, kClasses})
    for (const char* dtype : {"float32", "float64"}) {
      SCOPED_TRACE(part.kind);
      const SampleSpec spec = sample_spec(part, dtype);
      const Batch data = draw_data(part, dtype);
      const auto expect = [&](const at::Tensor& all, const std::vector<int64_t>& shape,
                              c10::ScalarType type) {
        EXPECT_EQ(all.size(0), part.options.integer("samples"));
        EXPECT_EQ(all.sizes().slice(1).vec(), shape);
        EXPECT_EQ(all.scalar_type(), type);
        EXPECT_TRUE(all.is_contiguous());
      };
      expect(data.input, spec.input_shape, spec.input_type);
      expect(data.target, spec.target_shape, spec.target_type);
    }
}

TEST(DrawnData, ClassesAreAllOfThem) {
  const at::Tensor target = draw_data(kClasses, "float64").target;
  EXPECT_EQ(target.scalar_type(), at::kLong);
  EXPECT_EQ(target.min().item<int64_t>(), 0);
  EXPECT_EQ(target.max().item<int64_t>(), 3);
}

TEST(DrawnData, TargetOfATokenIsTheNext) {
  const Batch data = draw_data(kTokens, "float32");
  EXPECT_TRUE(data.input.narrow(1, 1, 5).equal(data.target.narrow(1, 0, 5)));
  EXPECT_EQ(data.target.max().item<int64_t>(), 10);
}

TEST(DrawnData, RoutedChangesSignFromBlockToBlock) {
  const at::Tensor input = draw_data(kRouted, "float64").input;
  const at::Tensor signs = at::tensor({1., 1., -1., -1., 1., 1., -1., -1., 1.});
  EXPECT_TRUE(input.select(1, 0).equal(signs.to(at::kDouble)));
  EXPECT_FALSE(input.select(1, 1).equal(signs.to(at::kDouble)));
}

TEST(DrawnData, AnAutoencoderGetsItsInput) {
  Part part = kImages;
  part.options.set("target", std::string("input"));
  const Batch data = draw_data(part, "float32");
  EXPECT_TRUE(data.target.equal(data.input.view({9, 24})));
}

TEST(CrossEntropy, IsLogOfTheRightClass) {
  Part loss = mse();
  loss.kind = "cross_entropy";
  const at::Tensor output = at::randn({4, 3, 5}, at::kDouble);
  const at::Tensor target = at::randint(5, {4, 3}, at::kLong);
  const at::Tensor each =
      -output.log_softmax(2).gather(2, target.unsqueeze(2)).squeeze(2);  // of every token
  EXPECT_NEAR(loss_of(loss, output, target, 2).item<double>(), each.mean().item<double>(), 1e-12);
  loss.options.set("reduction", std::string("sum"));
  EXPECT_NEAR(loss_of(loss, output, target, 2).item<double>(), each.sum().item<double>(), 1e-12);
  EXPECT_NEAR(loss_of(loss, output.select(1, 0), target.select(1, 0), 2, 0.5).item<double>(),
              each.select(1, 0).sum().item<double>() / 2, 1e-12);
}

}  // namespace
}  // namespace lockstep
