#include <gtest/gtest.h>

#include <filesystem>

#include "sim/cli/sweep_runs.h"
#include "sim/cli/verbs.h"

namespace lockstep {
namespace {

// With all their steps: what a short run may do, a sweep's plan may have to refuse.
TEST(SweepSpec, EveryShippedSweepCanBeRun) {
  int sweeps = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/scenarios/sweeps")) {
    SweepOptions options;
    options.selection.paths = {entry.path().string()};
    const auto spec = sweep_spec(options);
    ASSERT_TRUE(spec) << entry.path() << ": " << to_text(spec.errors()[0]);
    const auto cells =
        sweep_cells(options, spec.value(), spec.value().caps.value_or(std::vector<double>{25}));
    ASSERT_TRUE(cells) << entry.path() << ": " << to_text(cells.errors()[0]);
    EXPECT_FALSE(cells.value().empty()) << entry.path();
    ++sweeps;
  }
  EXPECT_GE(sweeps, 6);
}

}  // namespace

}  // namespace lockstep
