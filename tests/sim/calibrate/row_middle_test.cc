// The machine between the explanations of a row.
#include "sim/calibrate/row_middle.h"

#include <gmock/gmock.h>

#include <string>

#include "scenarios/parse/suite.h"
#include "sim/calibrate/row_fit.h"

namespace lockstep {
namespace {

RowFit fit_of(const std::string& model, const MachineModel& machine, const PublishedTable& table) {
  const auto file =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/emulated_resnet50.json",
                         {.sets = {"/model={\"kind\": \"" + model + "\"}"}, .seed = {}});
  EXPECT_TRUE(file) << to_text(file.errors().front());
  const auto fit = fit_row(make_plans(file.value()).value().front(), machine, table);
  EXPECT_TRUE(fit) << to_text(fit.errors().front());
  return fit.value();
}

// A row of one host says little of links between hosts, however slow it is.
TEST(RowMiddle, LinksBetweenHostsAreHardlySlowedByARowOfOne) {
  const MachineModel said = *machine_preset("dgx_v100");
  const PublishedTable table{"made", {{1, {}, 60, false, false}, {8, {}, 100, true, true}}};
  const RowFit fit = fit_of("vgg16", said, table);
  EXPECT_GT(fit.machine.cost.link.beta_fs_per_byte, 3 * said.cost.link.beta_fs_per_byte);
  EXPECT_LT(fit.machine.cost.across.beta_fs_per_byte, 2 * said.cost.across.beta_fs_per_byte);
}

// Two ranks that take 8 % longer than one are no reason to think that PCI Express is as slow as
// just to show behind a backward that hides it, so that eight would take five times as long.
TEST(RowMiddle, ASmallExcessIsNotSlowLinks) {
  MachineModel shared = *machine_preset("10gbe");
  shared.cost.ranks_per_host = 8;
  shared.cost.cores_per_host = 1;
  shared.cost.link.beta_fs_per_byte = shared.cost.core_fs_per_byte = fs_per_byte_of(10'000);
  const PublishedTable table{
      "made", {{1, {}, 780, false, false}, {2, {}, 847, true, true}, {8, {}, 883, true, false}}};
  const RowFit fit = fit_of("alexnet", shared, table);
  EXPECT_LT(fit.rows[1].ms, 2 * 780);
  EXPECT_GT(fit.machine.overlap_slowdown, 0);
  EXPECT_LE(fit.rows[1].low, 883);
}

// Steps of two ranks and more take 3 to 4 % longer than one rank's in PyTorch's own tables.
TEST(RowMiddle, WithoutComputeAloneOneRankIsALittleFaster) {
  const PublishedTable table{"made", {{1, {}, 400, true, false}, {8, {}, 410, true, true}}};
  const RowFit fit = fit_of("resnet50", *machine_preset("dgx_a100"), table);
  EXPECT_LT(fit.rows[0].ms, 410 * (1 - kMostBeside / 4));
  EXPECT_THAT(fit.notes, testing::Contains(testing::HasSubstr("no row shows compute alone")));
}

}  // namespace
}  // namespace lockstep
