#include "scenarios/workloads/devices.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "scenarios/scenario.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

Scenario fake_scenario_of(int64_t devices_per_rank) {
  Scenario scenario;
  scenario.world_size = 3;
  scenario.device = "fake";
  scenario.devices_per_rank = devices_per_rank;
  scenario.dtype = "float32";
  scenario.model.kind = "mlp";
  scenario.model.options.set("in_features", int64_t{6});
  scenario.model.options.set("out_features", int64_t{3});
  scenario.model.options.set("hidden", std::vector<int64_t>{5, 4});
  scenario.model.options.set("activation", std::string("tanh"));
  scenario.model.options.set("bias", true);
  scenario.optimizer.kind = "sgd";
  scenario.optimizer.options.set("lr", 0.1);
  scenario.optimizer.options.set("momentum", 0.0);
  scenario.optimizer.options.set("dampening", 0.0);
  scenario.optimizer.options.set("weight_decay", 0.0);
  scenario.optimizer.options.set("nesterov", false);
  return scenario;
}

Training training_on(const std::vector<c10::Device>& devices) {
  const RandomSection random(7);
  return build_training(fake_scenario_of(2), "float32", devices);
}

TEST(FakeDevice, ARankHasDevicesOfItsOwn) {
  EXPECT_TRUE(rank_devices(Scenario(), 1, 1).empty());
  const auto devices = rank_devices(fake_scenario_of(2), 1, 1);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(device_name(devices[0]), "fake:2");
  EXPECT_EQ(device_name(devices[1]), "fake:3");
  EXPECT_EQ(device_of_name("fake:3"), devices[1]);
  EXPECT_EQ(device_of_name("cpu"), c10::Device(c10::kCPU));
}

TEST(FakeDevice, LayersLieInEqualShares) {
  const Scenario scenario = fake_scenario_of(2);
  EXPECT_EQ(device_of(scenario, "fc1.bias"), 0);
  EXPECT_EQ(device_of(scenario, "fc2.weight"), 0);
  EXPECT_EQ(device_of(scenario, "fc3.weight"), 1);
}

void expect_the_bits_of_one() {
  const auto devices = rank_devices(fake_scenario_of(2), 1, 1);
  const Training spread = training_on(devices), whole = training_on({});
  const at::Tensor input = at::randn({8, 6});
  for (const Training* training : {&spread, &whole})
    training->model->forward(input).pow(2).sum().backward();
  for (size_t p = 0; p < whole.parameters.size(); ++p) {
    const NamedTensor& one = spread.parameters[p];
    EXPECT_EQ(one.tensor.device(), devices[static_cast<size_t>(one.device)]) << one.name;
    EXPECT_EQ(one.tensor.grad().device(), one.tensor.device()) << one.name;
    EXPECT_TRUE(at::equal(on_host(one.tensor.grad()), whole.parameters[p].tensor.grad()))
        << one.name;
  }
}

// In a process of its own: LibTorch counts devices at the first backward of a process.
TEST(FakeDevice, SeveralDevicesGiveTheBitsOfOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        expect_the_bits_of_one();
        std::_Exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(FakeDevice, DevicesDoNotMix) {
  const auto devices = rank_devices(fake_scenario_of(2), 0, 0);
  const at::Tensor first = at::ones({3}).to(devices[0]), second = at::ones({3}).to(devices[1]);
  EXPECT_THAT(
      [&] {
        at::cat({first, second});
      },
      testing::ThrowsMessage<c10::Error>(
          testing::HasSubstr("aten::cat of tensors on fake:0 and fake:1")));
  EXPECT_THROW(first.add(at::ones({3})), c10::Error);
  EXPECT_TRUE(at::equal(first.add(second.to(devices[0])).cpu(), at::full({3}, 2.0F)));
}

TEST(FakeDevice, AViewOfTheHostIsTheSameMemory) {
  const auto devices = rank_devices(fake_scenario_of(2), 2, 2);
  const at::Tensor tensor = at::zeros({2, 3}).to(devices[1]);
  on_host(tensor).fill_(4);
  EXPECT_EQ(tensor.sum().item<float>(), 24);
  EXPECT_TRUE(on_host(at::Tensor()).defined() == false);
}

}  // namespace
}  // namespace lockstep
