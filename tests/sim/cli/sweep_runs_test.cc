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

Expected<std::vector<Cell>> cells_of(const SweepOptions& options) {
  const auto spec = sweep_spec(options);
  if (!spec) return spec.errors();
  return sweep_cells(options, spec.value(), {25});
}

std::vector<std::string> labels_of(const SweepOptions& options) {
  std::vector<std::string> labels;
  const auto cells = cells_of(options);
  EXPECT_TRUE(cells) << to_text(cells.errors()[0]);
  for (const Cell& cell : cells.value()) labels.push_back(label_of(cell));
  return labels;
}

// The reducer that has virtual shards takes them from where they are said, the others do without.
TEST(SweepCells, VirtualShardsAreOfTheirReducer) {
  const std::string folder = LOCKSTEP_SOURCE_DIR "/scenarios/";
  SweepOptions options;
  options.selection.paths = {folder + "invariant/batch_norm.json"};  // 6
  options.reducers = "bucketed,invariant,flat";
  options.worlds = "2,3";
  const auto of_file = cells_of(options);
  ASSERT_TRUE(of_file) << to_text(of_file.errors()[0]);
  ASSERT_EQ(of_file.value().size(), 6u);
  for (const Cell& cell : of_file.value()) {
    EXPECT_EQ(cell.plan.scenario.reducer.kind, cell.reducer);
    EXPECT_EQ(shards_of(cell.plan.scenario), cell.reducer == "invariant" ? 6 : cell.world_size);
  }
  options.selection.sets = {"/reducer/virtual_shards=4", "/batch_size=24"};
  const auto of_option = cells_of(options);
  ASSERT_TRUE(of_option) << to_text(of_option.errors()[0]);
  EXPECT_EQ(shards_of(of_option.value()[0].plan.scenario), 2);  // bucketed
  EXPECT_EQ(shards_of(of_option.value()[1].plan.scenario), 4);
  options.selection.paths = {folder + "stragglers/named_compute.json"};
  options.selection.sets = {"/faults=[]"};
  options.reducers = "bucketed,invariant";
  const auto missing = cells_of(options);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.errors()[0].pointer, "/reducer/virtual_shards");
  options.vary = {"/reducer/virtual_shards=[4, 8]"};
  options.worlds = "2";
  EXPECT_EQ(labels_of(options),
            (std::vector<std::string>{
                "world_size=2 reducer=bucketed bucket_cap_mb=25 virtual_shards=null",
                "world_size=2 reducer=invariant bucket_cap_mb=25 virtual_shards=4",
                "world_size=2 reducer=invariant bucket_cap_mb=25 virtual_shards=8"}));
}

}  // namespace

}  // namespace lockstep
