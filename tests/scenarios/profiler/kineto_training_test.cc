#include "scenarios/profiler/kineto_training.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/scenarios/profiler/made_training.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Expected<KinetoTraining> training_in(const std::string& text) {
  const auto trace = kineto_trace_of(text, "trace.json");
  if (!trace) return trace.errors();
  return training_of(trace.value());
}

std::string refusal(const std::string& text) {
  const auto training = training_in(text);
  return training ? "" : training.errors()[0].message;
}

// Of an event of the CPU's thread 1, behind those of a trace.
std::string with_event(std::string text, const std::string& name, double begin_us, double end_us,
                       const std::string& arguments, int64_t thread = 1) {
  text.resize(text.rfind("]}"));
  return text + fmt::format(R"(, {{"ph": "X", "cat": "cpu_op", "name": "{}", "pid": 1, "tid": {}, )"
                            R"("ts": {}, "dur": {}, "args": {{{}}}}}]}})",
                            name, thread, begin_us, end_us - begin_us, arguments);
}

TEST(KinetoTraining, GradientsHaveShapesInTheirOrder) {
  const auto training = training_in(MadeTraining().text());
  ASSERT_TRUE(training) << training.errors()[0].message;
  EXPECT_THAT(training.value().shapes,
              ElementsAre(ElementsAre(8), ElementsAre(8, 64), ElementsAre(64, 64)));
  EXPECT_EQ(training.value().dtype, "float32");
  EXPECT_THAT(training.value().backwards, SizeIs(3));
}

// 4 ms each; what launching a bucket takes is the bucket's, not the layer's behind it.
TEST(KinetoTraining, TimesAreWithoutLaunches) {
  const GradientTimes times = gradient_times(training_in(MadeTraining().text()).value());
  EXPECT_THAT(times.ready_ms,
              ElementsAre(DoubleNear(4, 1e-9), DoubleNear(8, 1e-9), DoubleNear(12, 1e-9)));
  EXPECT_NEAR(times.forward_ms.value(), 10, 1e-9) << "loading is before it";
}

TEST(KinetoTraining, WithoutDdpAForwardBeginsWithItsStep) {
  MadeTraining made;
  made.world_size = 1;
  made.with_forward = false;
  EXPECT_NEAR(gradient_times(training_in(made.text()).value()).forward_ms.value(), 11, 1e-9);
  made.with_steps = false;
  made.steps = 1;
  EXPECT_FALSE(gradient_times(training_in(made.text()).value()).forward_ms);
}

TEST(KinetoTraining, ABackwardThatTheTraceCutIsLeftOut) {
  MadeTraining made;
  std::string text = made.text();
  const size_t first = text.find("torch::autograd::AccumulateGrad");
  text.replace(first, 31, "torch::autograd::SomethingElse0");
  const auto training = training_in(text);
  ASSERT_TRUE(training);
  EXPECT_THAT(training.value().backwards, SizeIs(2));
  made.steps = 4;
  text = made.text();
  text.replace(text.rfind("torch::autograd::AccumulateGrad"), 31,
               "torch::autograd::SomethingElse0");
  EXPECT_THAT(training_in(text).value().backwards, SizeIs(3));
}

TEST(KinetoTraining, AGradientThatIsNoneIsLeftOut) {
  const std::string text =
      with_event(MadeTraining().text(), "torch::autograd::AccumulateGrad", 12'000, 12'001,
                 R"("Input type": [""], "Input Dims": [[]])", 5);
  EXPECT_THAT(training_in(text).value().shapes, SizeIs(3));
}

TEST(KinetoTraining, WhatIsNoneIsRefused) {
  MadeTraining made;
  made.with_shapes = false;
  EXPECT_THAT(refusal(made.text()), HasSubstr("shapes"));
  made = {};
  made.shapes.clear();
  EXPECT_THAT(refusal(made.text()), HasSubstr("no gradient"));
  made = {};
  made.type = "c10::complex<float>";
  EXPECT_THAT(refusal(made.text()), HasSubstr("type that no scenario has"));
  std::string text = made.text();
  text = MadeTraining().text();
  text.replace(text.rfind("[64, 64]"), 8, "[64, 65]");
  EXPECT_THAT(refusal(text), HasSubstr("backward 3 of 3"));
  text = with_event(MadeTraining().text(), "torch::autograd::AccumulateGrad", 12'000, 12'001,
                    R"("Input type": ["float"], "Input Dims": [[3]])", 5);
  EXPECT_THAT(refusal(text), HasSubstr("several threads"));
}

// What the CPU launched and went on from is there when the GPU has done it.
TEST(KinetoTraining, OnAGpuAGradientIsThereWhenItsKernelsAre) {
  KinetoTrace trace;
  trace.device_work = {{100, 150}, {200, 700}};
  EXPECT_EQ(done_us(trace, 90), 90);
  EXPECT_EQ(done_us(trace, 100), 150);
  EXPECT_EQ(done_us(trace, 199), 199);
  EXPECT_EQ(done_us(trace, 300), 700);
  EXPECT_EQ(done_us(trace, 800), 800);
}

TEST(KinetoTraining, OfAGpuKernelsCountByTheirLaunches) {
  MadeTraining made;
  made.world_size = 1;
  made.steps = 1;
  std::string text = made.text();
  text.resize(text.rfind("]}"));
  const auto event = [&](const char* category, const char* name, double begin_us, double end_us,
                         const char* arguments) {
    text +=
        fmt::format(R"(, {{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": 3, "ts": {}, )"
                    R"("dur": {}, "args": {{{}}}}})",
                    category, name, begin_us, end_us - begin_us, arguments);
  };
  // Forward ends 1 ms after the CPU has come to backward, at 11 ms.
  event("cuda_runtime", "cudaLaunchKernel", 5'000, 5'001, R"("correlation": 6)");
  event("kernel", "sgemm", 5'100, 12'000, R"("correlation": 6, "stream": 7)");
  // The first gradient comes at 15 ms, as the CPU sees it.
  event("cuda_runtime", "cudaLaunchKernel", 14'000, 14'001, R"("correlation": 7)");
  event("kernel", "sgemm", 14'500, 40'000, R"("correlation": 7, "stream": 7)");
  event("cuda_runtime", "cudaLaunchKernel", 14'100, 14'101, R"("correlation": 8)");
  event("kernel", "ncclDevKernel_AllReduce", 40'000, 90'000, R"("correlation": 8, "stream": 20)");
  const GradientTimes times = gradient_times(training_in(text + "]}").value());
  EXPECT_NEAR(times.forward_ms.value(), 11, 1e-9);
  EXPECT_NEAR(times.ready_ms[0], 28, 1e-9) << "from 12 ms to 40, not waiting for NCCL";
  EXPECT_NEAR(times.ready_ms[2], 28, 1e-9);
}

}  // namespace
}  // namespace lockstep
