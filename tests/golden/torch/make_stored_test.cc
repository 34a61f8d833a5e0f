#include "golden/golden_run.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>

#include "tests/golden/torch/scenarios.h"

namespace lockstep {
namespace {

std::string shipped_path() {
  return std::string(LOCKSTEP_SOURCE_DIR) + "/golden/data/linear_20x10.json";
}

double printed(float value, int64_t decimals) {
  const double unit = std::pow(10.0, static_cast<double>(decimals));
  return std::round(static_cast<double>(value) * unit) / unit;
}

// The published numbers of one device come out of a fresh golden run, at their decimals.
TEST(StoredGoldenRun, GivesThePublishedWeights) {
  const auto shipped = load_stored_golden(shipped_path());
  ASSERT_TRUE(shipped) << to_text(shipped.errors().front());
  const StoredGolden& stored = shipped.value();
  ASSERT_EQ(stored.published.size(), 2u);
  const PublishedValues& one_device = stored.published[0];
  ASSERT_EQ(one_device.of, "one_device");
  ASSERT_EQ(one_device.values.size(), 88u);
  EXPECT_EQ(stored.published[1].values.size(), 71u);
  const StoredGolden fresh = make_stored_golden(linear_manual_split());
  ASSERT_EQ(fresh.parameters.size(), 2u);
  ASSERT_EQ(fresh.parameters[0].name, one_device.tensor);
  for (size_t i = 0; i < one_device.values.size(); ++i)
    EXPECT_NEAR(printed(std::bit_cast<float>(fresh.parameters[0].bits[i]), stored.decimals),
                one_device.values[i], 1e-9)
        << i;
}

// Bits depend on LibTorch and CPU; at the printed decimals all 110 weights are the stored ones.
// Where they are not, the fresh file is left behind to be looked at.
TEST(StoredGoldenRun, TheShippedFileIsWhatOneDeviceGives) {
  const auto shipped = load_stored_golden(shipped_path());
  ASSERT_TRUE(shipped) << to_text(shipped.errors().front());
  StoredGolden fresh = shipped.value();
  fresh.parameters = make_stored_golden(linear_manual_split()).parameters;
  const std::string left = ::testing::TempDir() + "linear_20x10.json";
  std::ofstream(left) << to_text(fresh);
  const StoredGolden& stored = shipped.value();
  ASSERT_EQ(fresh.parameters.size(), stored.parameters.size());
  for (size_t p = 0; p < fresh.parameters.size(); ++p) {
    EXPECT_EQ(fresh.parameters[p].name, stored.parameters[p].name);
    EXPECT_EQ(fresh.parameters[p].shape, stored.parameters[p].shape);
    for (size_t i = 0; i < fresh.parameters[p].bits.size(); ++i)
      EXPECT_NEAR(std::bit_cast<float>(fresh.parameters[p].bits[i]),
                  std::bit_cast<float>(stored.parameters[p].bits[i]), 2e-7)
          << stored.parameters[p].name << " " << i << "; see " << left;
  }
}

}  // namespace
}  // namespace lockstep
