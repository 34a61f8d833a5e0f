#include <gmock/gmock.h>

#include <functional>

#include "scenarios/base/part.h"

namespace lockstep {
namespace {

using IntFactory = std::function<int()>;

TEST(Registry, GivesWhatWasAddedAndNamesWhatThereIs) {
  Registry<IntFactory> known("thing");
  EXPECT_THAT([&] { known.get("one"); },
              ::testing::ThrowsMessage<std::runtime_error>(
                  "no thing \"one\" is registered in this worker; there are: none"));
  EXPECT_TRUE(known.add("one", [] { return 1; }));
  EXPECT_TRUE(known.add("two", [] { return 2; }));
  EXPECT_EQ(known.get("two")(), 2);
  EXPECT_THAT([&] { known.get("six"); },
              ::testing::ThrowsMessage<std::runtime_error>(
                  "no thing \"six\" is registered in this worker; there are: one two"));
}

TEST(RegistryDeathTest, ANameIsTakenOnce) {
  Registry<IntFactory> known("thing");
  known.add("one", [] { return 1; });
  EXPECT_DEATH(known.add("one", [] { return 2; }), "a thing \"one\" is registered already");
}

}  // namespace

}  // namespace lockstep
