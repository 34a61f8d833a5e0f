#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::string kMlp =
    R"(/model={"kind": "mlp", "in_features": 3, "hidden": [4, 4], "out_features": 2})";
const std::string kNorm =
    R"(/model={"kind": "batch_norm_mlp", "in_features": 3, "hidden": [4], "out_features": 2})";
const std::string kSmall = "/reducer/bucket_cap_mb=0.00001";

BucketLayout layout(const Strings& sets) {
  const auto plan = plan_of(sets);
  return plan ? plan.value().layout_at_construction : BucketLayout{};
}

TEST(WrappingCheck, IgnoredParametersAreInNoBucketUnlessAveragedByHand) {
  const std::string ignored = R"(/ignored=["fc1", "fc3.bias"])";
  EXPECT_EQ(layout({kMlp, ignored}), (BucketLayout{{2, 3, 4}}));
  EXPECT_EQ(layout({kMlp, ignored, R"(/frozen=["fc1.bias"])", "/reducer/average_ignored=true"}),
            (BucketLayout{{2, 3, 4}, {0}, {5}}));
}

TEST(WrappingCheck, EachModuleHasBucketsOfItsOwnTheLastFirst) {
  const std::string modules = R"(/wrapped_modules=["fc1", "fc2", "fc3"])";
  EXPECT_EQ(layout({kMlp, modules}), (BucketLayout{{4, 5}, {2, 3}, {0, 1}}));
  EXPECT_EQ(layout({kMlp, modules, kSmall, "/reducer/first_bucket_mb=0.00001",
                    "/reducer/find_unused_parameters=true"}),
            (BucketLayout{{5}, {4}, {3}, {2}, {1}, {0}}));
}

TEST(WrappingCheck, NamesMustNameSomething) {
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc"])"}), HasSubstr("the model has no \"fc\""));
  EXPECT_EQ(errors_of({kNorm, R"(/ignored=["bn1.running_mean"])"}), "");
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc1", "fc2", "fc3"])"}),
              HasSubstr("/ignored: nothing is left to the reducer"));
  EXPECT_THAT(errors_of({kMlp, "/reducer/average_ignored=true"}),
              HasSubstr("/reducer/average_ignored: no parameter that is trained is ignored"));
}

TEST(WrappingCheck, ModulesHoldEveryTensorOnce) {
  EXPECT_THAT(errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc2"])"}),
              HasSubstr("fc3.weight is in 0 of these modules"));
  EXPECT_THAT(errors_of({kNorm, R"(/wrapped_modules=["fc1", "fc2", "bn1.weight", "bn1.bias"])"}),
              HasSubstr("bn1.running_mean is in 0 of these modules"));
  EXPECT_THAT(errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc1.bias", "fc2", "fc3"])"}),
              HasSubstr("fc1.bias is in 2 of these modules"));
  EXPECT_THAT(errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc2", "fc3"])", R"(/frozen=["fc2"])"}),
              HasSubstr("\"fc2\" has no parameter for its reducer"));
}

TEST(WrappingCheck, BufferHooksTakeThePlaceOfABroadcast) {
  const std::string after = "/reducer/buffer_hook=average_after_forward";
  EXPECT_EQ(errors_of({kNorm, after}), "");
  EXPECT_THAT(errors_of({kMlp, after}), HasSubstr("the model has no buffers"));
  EXPECT_THAT(errors_of({kNorm, after, "/reducer/broadcast_buffers=false"}),
              HasSubstr("a hook in place of a broadcast that is off"));
  EXPECT_THAT(errors_of({kNorm, after, "/accumulate_steps=2"}),
              HasSubstr("average_before_forward, or accumulate_steps 1"));
}

TEST(WrappingCheck, OnlyDdpKindsHaveThem) {
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc1"])", "/reducer/kind=flat"}),
              HasSubstr("reducer \"flat\" has no parameters that are left alone"));
  EXPECT_THAT(
      errors_of({kMlp, R"(/wrapped_modules=["fc1", "fc2", "fc3"])", "/reducer/kind=manual"}),
      HasSubstr("reducer bucketed or c10d"));
  EXPECT_THAT(errors_of({kMlp, R"(/ignored=["fc1"])", R"(/optimizer_sharding={"kind": "zero"})"}),
              HasSubstr("the optimizer is shared out"));
}

TEST(WrappingCheck, ALossTakesWhatIsReturned) {
  const std::string heads = R"(/model={"kind": "two_heads", "in_features": 3, "out_features": 2})";
  EXPECT_EQ(errors_of({heads}), "");
  EXPECT_THAT(errors_of({heads, "/model/returned=left"}), HasSubstr("/model/in_loss"));
  EXPECT_EQ(errors_of({heads, "/model/returned=left", "/model/in_loss=left"}), "");
}

}  // namespace
}  // namespace lockstep
