#include "sim/calibrate/wire.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Wire, TakesOneAfterTheOther) {
  EXPECT_EQ(wire_times_ns({{0, 10}, {20, 25}}), (std::vector<double>{10, 5}));
  EXPECT_EQ(wire_times_ns({{0, 10}, {5, 25}}), (std::vector<double>{10, 15}));
  EXPECT_EQ(wire_times_ns({{0, 30}, {5, 25}}), (std::vector<double>{5, 20}));
  EXPECT_EQ(wire_times_ns({{5, 5}, {9, 4}}), (std::vector<double>{0, 0}));
  EXPECT_TRUE(wire_times_ns({}).empty());
}

TEST(Wire, ThatIsSharedIsThatOfAllAlike) {
  // Two that end together; one of another size after them; one alone, once the wire was free.
  EXPECT_EQ(shared_wire_times_ns({{0, 20, 8}, {0, 20, 8}, {5, 26, 4}, {40, 47, 8}}),
            (std::vector<double>{10, 10, 6, 7}));
  EXPECT_TRUE(shared_wire_times_ns({}).empty());
}

}  // namespace
}  // namespace lockstep
