#include <gtest/gtest.h>

#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

const Strings kMlpOnDevices = {
    R"(/model={"kind":"mlp","in_features":10,"hidden":[10],"out_features":5})",
    R"(/data={"kind":"randn","samples":80,"features":10,"targets":5})", "/device=fake"};

Strings on_devices(Strings sets) {
  sets.insert(sets.begin(), kMlpOnDevices.begin(), kMlpOnDevices.end());
  return sets;
}

std::string refusal_of_devices(const Strings& sets) { return errors_of(on_devices(sets)); }

TEST(Devices, OfARankHaveBucketsOfTheirOwn) {
  const auto one = plan_of(kMlpOnDevices);
  ASSERT_TRUE(one) << to_text(one.errors()[0]);
  EXPECT_EQ(one.value().layout_at_construction, (BucketLayout{{0, 1, 2, 3}}));
  const auto two = plan_of(on_devices({"/devices_per_rank=2"}));
  ASSERT_TRUE(two);
  EXPECT_EQ(two.value().layout_at_construction, (BucketLayout{{2, 3}, {0, 1}}));
}

TEST(Devices, AModelOverSeveralDoesNotLiveOnOne) {
  EXPECT_EQ(refusal_of_devices({"/devices_per_rank=2", "/device_ids=[0]"}),
            "/device_ids: a model over 2 devices cannot live on those given; expected no "
            "device_ids with /devices_per_rank above 1");
  EXPECT_EQ(refusal_of_devices({"/device_ids=[0]"}), "");
  EXPECT_EQ(refusal_of_devices({"/device_ids=[1]"}),
            "/device_ids: a rank has one device, 0, and 1 are given; expected [0]");
}

TEST(Devices, NeedLayersAndPartsThatKnowThem) {
  EXPECT_EQ(refusal_of_devices({"/devices_per_rank=3"}),
            "/devices_per_rank: 2 layers cannot lie on 3 devices; expected at most 2");
  EXPECT_EQ(errors_of({"/devices_per_rank=2"}),
            "/devices_per_rank: a rank on the cpu has one device, not 2; expected 1, or /device "
            "\"fake\"");
  EXPECT_EQ(refusal_of_devices({"/communicator/kind=local"}),
            "/device: communicator local knows no devices; expected \"cpu\", or "
            "/communicator/kind gloo, c10d, or on a GPU nccl");
  EXPECT_EQ(refusal_of_devices({"/devices_per_rank=2", "/model/register=backwards"}).substr(0, 72),
            "/device: layers are laid on several devices in the order of registration");
  EXPECT_EQ(refusal_of_devices({"/reducer/kind=sharded"}).substr(0, 57),
            "/device: reducer sharded keeps its tensors on the cpu; ex");
}

std::string refusal_on_cuda(Strings sets) {
  sets.emplace_back("/device=cuda");
  return errors_of(on_devices(std::move(sets)));
}

TEST(Devices, CudaTakesWhatHasBeenThoughtThrough) {
  EXPECT_EQ(refusal_on_cuda({}), "");
  EXPECT_EQ(refusal_on_cuda({"/communicator/kind=c10d"}), "");
  EXPECT_EQ(refusal_on_cuda({"/communicator/kind=nccl"}), "");
  EXPECT_EQ(refusal_on_cuda({"/communicator/kind=local"}),
            "/device: communicator local knows no devices; expected \"cpu\", or "
            "/communicator/kind gloo, c10d, or on a GPU nccl");
  EXPECT_EQ(refusal_on_cuda({"/devices_per_rank=2"}),
            "/devices_per_rank: a rank on a GPU has one device, not 2; expected 1, or /device "
            "\"fake\"");
  EXPECT_EQ(refusal_on_cuda({"/streams=late"}),
            "/streams: a GPU's streams are as late as they are; expected \"in_order\", or /device "
            "\"fake\"");
  EXPECT_EQ(refusal_on_cuda({"/reducer/kind=sharded"}).substr(0, 57),
            "/device: reducer sharded keeps its tensors on the cpu; ex");
}

TEST(Devices, NcclKnowsGpusAlone) {
  EXPECT_EQ(errors_of({"/communicator/kind=nccl"}),
            "/communicator/kind: NCCL knows the memory of GPUs alone, not device cpu; expected "
            "another kind, or /device \"cuda\"");
}

std::vector<std::pair<Lane, std::string>> dropped(Strings sets) {
  sets.emplace_back(R"(/lanes=["replica","replay","communication"])");
  const auto plan = plan_of(on_devices(std::move(sets)));
  EXPECT_TRUE(plan) << to_text(plan.errors()[0]);
  return plan.value().not_applicable;
}

TEST(Devices, OverNcclTheBoundStandsInForReplay) {
  const auto of_nccl = dropped({"/device=cuda", "/communicator/kind=nccl"});
  ASSERT_EQ(of_nccl.size(), 1u);
  EXPECT_EQ(of_nccl[0].first, Lane::replay);
  EXPECT_EQ(of_nccl[0].second,
            "nobody but NCCL knows the order of its additions: lane communication");
  EXPECT_TRUE(dropped({"/device=cuda"}).empty());
}

TEST(Devices, BitsOfTheCpuAreNoGpus) {
  const auto both = dropped({"/device=cuda", "/golden_device=cpu"});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].first, Lane::replay);
  EXPECT_EQ(both[1].first, Lane::communication);
}

}  // namespace
}  // namespace lockstep
