// On devices that stand in for a GPU, or with LOCKSTEP_TEST_DEVICE=cuda on a real one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "reducer/device/staged.h"
#include "scenarios/base/clock.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/workload.h"
#include "sim/worker/probe.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

std::string device_word() {
  const char* word = std::getenv("LOCKSTEP_TEST_DEVICE");
  return word != nullptr ? word : "fake";
}

Scenario small_scenario() {
  Scenario scenario;
  scenario.world_size = 3;
  scenario.device = device_word();
  scenario.dtype = "float32";
  scenario.model.kind = "mlp";
  scenario.model.options.set("in_features", int64_t{6});
  scenario.model.options.set("hidden", std::vector<int64_t>{8});
  scenario.model.options.set("out_features", int64_t{4});
  scenario.model.options.set("bias", true);
  scenario.model.options.set("register", std::string("forwards"));
  scenario.model.options.set("activation", std::string("tanh"));
  scenario.optimizer.kind = "sgd";
  for (const char* key : {"momentum", "weight_decay", "dampening"})
    scenario.optimizer.options.set(key, 0.0);
  scenario.optimizer.options.set("lr", 0.1);
  scenario.optimizer.options.set("nesterov", false);
  return scenario;
}

class Accelerator : public testing::Test {
 protected:
  void SetUp() override {
    if (device_word() != "cuda") return;
    if (!cuda_devices().problem.empty()) GTEST_SKIP() << cuda_devices().problem;
    prepare_devices(small_scenario());
  }
  static c10::Device device(int64_t rank) {
    return rank_devices(small_scenario(), rank, rank).front();
  }
};

TEST_F(Accelerator, AModelThatLivesThereComputesThere) {
  const Scenario scenario = small_scenario();
  const RandomSection random(1);
  const Training training = build_training(scenario, "float32", {device(0)});
  const at::Tensor output = training.model->forward(at::ones({5, 6}));
  EXPECT_EQ(output.device(), device(0));
  output.sum().backward();
  for (const NamedTensor& parameter : training.parameters) {
    EXPECT_EQ(parameter.tensor.device(), device(0)) << parameter.name;
    EXPECT_EQ(parameter.tensor.grad().device(), device(0)) << parameter.name;
    EXPECT_TRUE(parameter.tensor.is_leaf()) << parameter.name;
  }
  EXPECT_EQ(on_host(output).device(), c10::Device(c10::kCPU));
}

TEST_F(Accelerator, CollectivesAreStagedOverTheHost) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const CommOptions options{rank, 3, "ring", "127.0.0.1", "staged/"};
      const auto communicator = make_staged(make_gloo_communicator(options, store, soon()));
      const at::Tensor tensor = at::full({1000}, static_cast<double>(rank + 1)).to(device(rank));
      const CommWorkPtr work = communicator->all_reduce(tensor, soon());
      work->wait();
      EXPECT_TRUE(on_host(tensor * 2).eq(12).all().item<bool>()) << rank;
      communicator->close(soon());
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(Accelerator, ItsClockIsTheHostsWithinWhatItSays) {
  const auto clock = DeviceClock::of(device(0));
  if (clock == nullptr) GTEST_SKIP() << "this LibTorch's events have no times";
  clock->anchor();
  const int64_t before = now_ns();
  clock->mark(3);
  at::Tensor work = at::ones({200, 200}).to(device(0));
  for (int i = 0; i < 20; ++i) work = work.matmul(work).div(1e3);
  clock->mark(5);
  const auto readings = clock->take();
  const int64_t after = now_ns();
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_EQ(readings[0].what, 3);
  EXPECT_EQ(readings[1].what, 5);
  EXPECT_LT(readings[0].time_ns, readings[1].time_ns);
  EXPECT_GT(readings[0].time_ns, before - readings[0].uncertainty_ns);
  EXPECT_LT(readings[1].time_ns, after + readings[1].uncertainty_ns);
  EXPECT_TRUE(clock->take().empty());
}

TEST_F(Accelerator, TheCpuHasNoClockOfItsOwn) {
  EXPECT_EQ(DeviceClock::of(c10::Device(c10::kCPU)), nullptr);
}

}  // namespace
}  // namespace lockstep
