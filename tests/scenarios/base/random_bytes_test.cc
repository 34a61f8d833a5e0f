#include "scenarios/base/random_bytes.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RandomBytes, AreAsManyAsAskedForAndNeverTheSame) {
  EXPECT_EQ(random_bytes(0), "");
  EXPECT_EQ(random_bytes(4096).size(), 4096u);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

}  // namespace
}  // namespace lockstep
