#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <numeric>

#include "scenarios/base/clock.h"
#include "scenarios/layer_times.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/scenarios/part_of.h"
#include "tests/scenarios/profiler/made_training.h"

namespace lockstep {
namespace {

Part resnet(const char* kind, int64_t width = 64) {
  return part_of(kind,
                 {{"width", width}, {"classes", int64_t{1000}}, {"norm", std::string("batch")}});
}

Part images(int64_t side) {
  return part_of("images", {{"channels", int64_t{3}},
                            {"height", side},
                            {"width", side},
                            {"classes", int64_t{1000}},
                            {"target", std::string("label")}});
}

Scenario scenario_of_profile(Part model, Part data) {
  Scenario scenario;
  scenario.model = std::move(model);
  scenario.data = std::move(data);
  scenario.world_size = 2;
  scenario.batch_size = 8;
  scenario.compute = part_of("emulated", {{"forward_ms", 100.0}});
  return scenario;
}

Scenario mlp_scenario() {
  const Part mlp = part_of("mlp", {{"in_features", int64_t{10}},
                                   {"hidden", std::vector<int64_t>{20}},
                                   {"out_features", int64_t{5}},
                                   {"activation", std::string("relu")},
                                   {"bias", true}});
  return scenario_of_profile(
      mlp, part_of("randn", {{"features", int64_t{10}}, {"targets", int64_t{5}}}));
}

int64_t macs_of(const ModelManifest& manifest) {
  return std::accumulate(manifest.layers.begin(), manifest.layers.end(), int64_t{0},
                         [](int64_t sum, const LayerSpec& layer) { return sum + layer.macs; });
}

int64_t macs_of(const Part& model, const std::vector<int64_t>& sample) {
  return macs_of(*manifest_of(model, "float32", sample));
}

TEST(LayerWork, PublishedNumbersOfMultiplyAccumulates) {
  EXPECT_EQ(macs_of(resnet("resnet50"), {3, 224, 224}), 4'089'184'256);
  EXPECT_EQ(macs_of(resnet("resnet18"), {3, 224, 224}), 1'814'073'344);
  const Part classes = part_of("", {{"classes", int64_t{10}}});
  EXPECT_EQ(macs_of({"mnist_convnet", classes.options}, {1, 28, 28}),
            24 * 24 * 10 * 25 + 8 * 8 * 20 * 10 * 25 + 320 * 50 + 50 * 10);
  EXPECT_EQ(macs_of({"cifar_cnn", classes.options}, {3, 32, 32}),
            28 * 28 * 6 * 75 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10);
}

TEST(LayerWork, OfTokensEachOneCounts) {
  const Part gpt = part_of("gpt", {{"vocabulary", int64_t{50}},
                                   {"context", int64_t{6}},
                                   {"layers", int64_t{1}},
                                   {"heads", int64_t{2}},
                                   {"width", int64_t{8}}});
  const ModelManifest manifest = *manifest_of(gpt, "float32", {6});
  // qkv, attention, out, fc1, fc2, head
  EXPECT_EQ(macs_of(manifest),
            6 * 8 * 24 + 2 * 6 * 6 * 8 + 6 * 8 * 8 + 2 * 6 * 8 * 32 + 6 * 8 * 50);
  EXPECT_EQ(manifest.layers.front().elements, 6 * 8);
  EXPECT_EQ(manifest.layers.back().name, "head");
  EXPECT_TRUE(manifest.layers.back().parameters.empty());
}

// Every parameter belongs to one layer, and layers come in the order of registration.
TEST(LayerWork, LayersHoldAllParameters) {
  for (const char* kind : {"resnet18", "resnet50"}) {
    const ModelManifest manifest = *manifest_of(resnet(kind), "float32");
    std::vector<int64_t> held, all(manifest.parameters.size());
    std::iota(all.begin(), all.end(), 0);
    for (const LayerSpec& layer : manifest.layers)
      for (const int64_t p : layer.parameters) {
        held.push_back(p);
        EXPECT_EQ(manifest.parameters[static_cast<size_t>(p)].name.rfind(layer.name + ".", 0), 0U);
      }
    EXPECT_EQ(held, all);
    EXPECT_EQ(macs_of(manifest), 0) << "without a sample";
  }
  EXPECT_EQ(manifest_of(part_of("linear", {{"in_features", int64_t{3}},
                                           {"out_features", int64_t{2}},
                                           {"bias", true}}),
                        "float32")
                ->layers.at(0)
                .name,
            "linear");
}

TEST(LayerTimes, AreSharesOfTheTotals) {
  const auto times = layer_times(mlp_scenario());
  ASSERT_TRUE(times);
  ASSERT_EQ(times.value().size(), 2U);
  const LayerTime &fc1 = times.value()[0], &fc2 = times.value()[1];
  EXPECT_DOUBLE_EQ(fc1.forward_ms, 100.0 * 200 / 300);
  EXPECT_DOUBLE_EQ(fc2.backward_ms, 200.0 * 100 / 300) << "twice the forward";
  EXPECT_DOUBLE_EQ(fc2.ready_ms, fc2.backward_ms) << "the last layer is the first of a backward";
  EXPECT_DOUBLE_EQ(fc1.ready_ms, 200);
}

TEST(LayerTimes, OfResNet50) {
  Scenario scenario = scenario_of_profile(resnet("resnet50"), images(224));
  scenario.compute.options.set("backward_ms", 150.0);
  const LayerTimes times = layer_times(scenario).value();
  EXPECT_EQ(times.size(), 107U);
  EXPECT_NEAR(times.front().ready_ms, 150, 1e-9);
  double forward = 0;
  for (const LayerTime& time : times) forward += time.forward_ms;
  EXPECT_NEAR(forward, 100, 1e-9);
  // 118 of 4,089 million, with norms 4,100
  EXPECT_NEAR(times.front().forward_ms, 100 * 118.013952 / 4100.298, 1e-3);
}

TEST(LayerTimes, PlannedSamplesAreThoseOfAMicroBatch) {
  Scenario scenario = mlp_scenario();
  EXPECT_EQ(planned_samples(scenario), 4);
  scenario.accumulate_steps = 2;
  EXPECT_EQ(planned_samples(scenario), 2);
}

LayerProfile profile() {
  const Scenario scenario = mlp_scenario();
  return {profiled_model(scenario),        "float32", 2, {10}, 5, "cpu", "libraries",
          {{"fc1", 3, 5}, {"fc2", 1, 2.5}}};
}

TEST(LayerProfile, IsReadAsWritten) {
  const TemporaryFolder folder;
  const LayerProfile written = profile();
  const auto read = read_profile(folder.write("a.profile", to_text(written)));
  ASSERT_TRUE(read) << to_text(read.errors()[0]);
  EXPECT_EQ(read.value().layers, written.layers);
  EXPECT_EQ(read.value().model, written.model);
  EXPECT_EQ(to_text(read.value()), to_text(written));
}

TEST(LayerTimes, AreThoseOfAProfile) {
  const TemporaryFolder folder;
  Scenario scenario = mlp_scenario();
  scenario.compute = part_of("emulated", {{"profile", folder.write("a", to_text(profile()))}});
  const LayerTimes own = layer_times(scenario).value();
  EXPECT_EQ(own, (LayerTimes{{"fc1", 6, 10, 15}, {"fc2", 2, 5, 5}})) << "4 samples, not 2";
  scenario.compute.options.set("forward_ms", 80.0);
  EXPECT_EQ(layer_times(scenario).value()[0], (LayerTime{"fc1", 60, 10, 15}));
  scenario.compute.options.set("backward_ms", 30.0);
  EXPECT_EQ(layer_times(scenario).value()[0], (LayerTime{"fc1", 60, 20, 30}));
}

Scenario traced_scenario(const std::string& path) {
  Scenario scenario = scenario_of_profile(
      part_of("parameters",
              {{"parameters",
                std::vector<std::string>{"b.weight 64x64", "a.weight 8x64", "a.bias 8"}}}),
      part_of("randn", {{"features", int64_t{1}}, {"targets", int64_t{1}}}));
  scenario.compute = part_of("emulated", {{"profile", path}});
  return scenario;
}

// Gradients come after 4, 8 and 12 ms; layer a has the first two.
TEST(LayerTimes, AreThoseOfATrace) {
  const TemporaryFolder folder;
  Scenario scenario = traced_scenario(folder.write("trace.json", MadeTraining().text()));
  const LayerTimes times = layer_times(scenario).value();
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].layer, "b");
  EXPECT_NEAR(times[0].backward_ms, 4, 1e-9);
  EXPECT_NEAR(times[0].ready_ms, 12, 1e-9);
  EXPECT_NEAR(times[1].backward_ms, 8, 1e-9);
  EXPECT_NEAR(times[0].forward_ms + times[1].forward_ms, 10, 1e-9);
  scenario.time_scale = 2;
  EXPECT_NEAR(layer_times(scenario).value()[0].ready_ms, 24, 1e-9);
}

std::string error_of(const Scenario& scenario) {
  const auto times = layer_times(scenario);
  if (times) return "";
  EXPECT_EQ(times.errors()[0].pointer, "/compute/profile");
  return times.errors()[0].message;
}

TEST(LayerTimes, SayWhatIsWrongWithATrace) {
  const TemporaryFolder folder;
  MadeTraining made;
  Scenario scenario = traced_scenario(folder.write("a", made.text()));
  scenario.dtype = "float64";
  EXPECT_EQ(error_of(scenario),
            "the trace does not suit: its gradients are float32, but the scenario's float64");
  made.shapes[1] = {8, 65};
  EXPECT_EQ(error_of(traced_scenario(folder.write("b", made.text()))),
            "the trace does not suit: where the model has a.weight of [8, 64] it has a gradient of "
            "[8, 65]");
  made.shapes.pop_back();
  EXPECT_EQ(error_of(traced_scenario(folder.write("c", made.text()))),
            "the trace does not suit: it has 2 gradients, but the model 3 trained parameters");
  made = {};
  made.with_forward = made.with_steps = false;
  made.steps = 1;
  scenario = traced_scenario(folder.write("d", made.text()));
  EXPECT_EQ(error_of(scenario), "the trace does not suit: no forward has its begin in it");
  scenario.compute.options.set("forward_ms", 5.0);
  EXPECT_EQ(error_of(scenario), "");
}

std::string error_with(const std::string& path) {
  Scenario scenario = mlp_scenario();
  scenario.compute = part_of("emulated", {{"profile", path}});
  const auto times = layer_times(scenario);
  if (times) return "";
  EXPECT_EQ(times.errors()[0].pointer, "/compute/profile");
  std::string message = times.errors()[0].message;
  for (size_t at = message.find(path); at != std::string::npos; at = message.find(path))
    message.replace(at, path.size(), "FILE");
  return message;
}

TEST(LayerTimes, SayWhatIsWrongWithAProfile) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_with("/nowhere/a.profile"),
            "FILE: error: cannot be opened: No such file or directory");
  EXPECT_EQ(error_with(folder.write("cut", to_text(profile()).substr(0, 40))),
            "FILE:3:3: error: this string does not end; expected \"");
  std::string text = to_text(profile());
  text.replace(text.find("\"samples\""), 9, "\"smples\"");
  EXPECT_EQ(error_with(folder.write("key", text)),
            "FILE:6:3: error: unknown key \"smples\"; did you mean \"samples\"?");
  LayerProfile other = profile();
  other.layers[1].layer = "fc3";
  EXPECT_EQ(error_with(folder.write("names", to_text(other))),
            "the profile does not suit: its layer 1 is \"fc3\", but the model's is \"fc2\"");
  other.layers.pop_back();
  EXPECT_EQ(error_with(folder.write("fewer", to_text(other))),
            "the profile does not suit: it has 1 layers, but the model has 2");
  other = profile();
  other.sample = {11};
  EXPECT_EQ(error_with(folder.write("sample", to_text(other))),
            "the profile does not suit: it was measured on samples of [11], but the scenario's are "
            "[10]");
  other = profile();
  other.model = R"({"kind":"gpt"})";
  EXPECT_EQ(error_with(folder.write("model", to_text(other))).substr(0, 80),
            "the profile does not suit: it was measured on model {\"kind\":\"gpt\"}, but the scen");
}

constexpr int64_t kMs = 1'000'000;

// Time that passes only in sleeps, and where a test says so.
struct FakeTime {
  int64_t now = 1'000 * kMs;
  int64_t late = 0;               // by which every sleep ends
  int64_t stop_at = 0, stop = 0;  // then, for so long, the rank is stopped

  TimeSource source() {
    return {[this] { return now; },
            [this](int64_t until) {
              const bool stopped = stop_at > now && stop_at <= until;
              now = std::max({now, until + late, stopped ? stop_at + stop : 0});
            }};
  }
};

class ComputeClockTest : public testing::Test {
 protected:
  double forward_ms(int64_t samples) {
    const int64_t begin = time_.now;
    clock_.begin_forward(samples);
    clock_.wait_forward(0);
    clock_.wait_forward(1);
    return ms_since(begin);
  }
  // After `own_ms` of the rank's own work before each layer.
  double backward_ms(double own_ms = 0) {
    const int64_t begin = time_.now;
    clock_.begin_backward();
    for (const size_t layer : {1, 0}) {
      time_.now += static_cast<int64_t>(own_ms * kMs);
      clock_.wait_backward(layer);
    }
    return ms_since(begin);
  }
  double ms_since(int64_t begin) const { return static_cast<double>(time_.now - begin) / kMs; }

  FakeTime time_;
  ComputeClock clock_{{{"a", 4, 8, 40}, {"b", 6, 32, 32}}, 4, time_.source()};
};

TEST_F(ComputeClockTest, LayersTakeTheirTime) {
  EXPECT_EQ(forward_ms(4), 10);
  EXPECT_EQ(backward_ms(), 40);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
}

TEST_F(ComputeClockTest, TimeGoesWithSamplesAndFactor) {
  EXPECT_EQ(forward_ms(8), 20);
  EXPECT_EQ(backward_ms(), 80);
  clock_.set_factor(3);
  EXPECT_EQ(forward_ms(2), 15);
  clock_.set_factor(1);
  EXPECT_EQ(backward_ms(), 20);
}

TEST_F(ComputeClockTest, APauseComesBeforeItsLayer) {
  forward_ms(4);
  clock_.set_pause_before_layer("a.weight", 30);
  EXPECT_EQ(backward_ms(), 70);
  EXPECT_EQ(forward_ms(4), 10);
  const int64_t begin = time_.now;
  clock_.begin_backward();
  clock_.wait_backward(1);
  EXPECT_EQ(ms_since(begin), 32) << "b comes before a";
  clock_.set_pause_before_layer("a", 0);
  EXPECT_EQ(backward_ms(), 40);
  EXPECT_DEATH(clock_.set_pause_before_layer("c", 1), "no layer c");
}

// A rank is late by one sleep, not by the sum of them.
TEST_F(ComputeClockTest, WhatIsShorterThanAHaltDoesNotAddUp) {
  forward_ms(4);
  EXPECT_EQ(backward_ms(4), 40) << "the rank's own work is hidden behind its layers";
  time_.late = kMs / 2;
  EXPECT_EQ(backward_ms(4), 40.5);
  EXPECT_EQ(forward_ms(4), 10.5);
}

TEST_F(ComputeClockTest, ARankThatIsLateByAHaltStaysLate) {
  forward_ms(4);
  EXPECT_EQ(backward_ms(20), 80);
}

TEST_F(ComputeClockTest, AStopWithinALayerIsNoticed) {
  forward_ms(4);
  time_.stop_at = time_.now + 15 * kMs;
  time_.stop = 9 * kMs;
  EXPECT_EQ(backward_ms(), 40);
  time_.stop_at = time_.now + 15 * kMs;
  time_.stop = 300 * kMs;
  EXPECT_EQ(backward_ms(), 339) << "less what was left of a slice";
}

TEST(MonotonicTime, SleepsUntilThen) {
  const TimeSource time = monotonic_time();
  const int64_t target = time.now_ns() + 5 * kMs;
  time.sleep_until_ns(target);
  EXPECT_GE(now_ns(), target);
}

}  // namespace

}  // namespace lockstep
