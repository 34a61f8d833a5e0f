#include "sim/report/published.h"

#include <gmock/gmock.h>

#include "sim/report/terminal.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kShipped = LOCKSTEP_SOURCE_DIR "/golden/data/cifar10_losses.json";

RunResult with_losses() {
  RunResult run;
  run.name = "cifar";
  run.verdict = "pass";
  run.met = true;
  run.losses = {{1, 1, 2.3041, 2.2841}, {1, 201, 2.2961, 2.2441}, {2, 3126, 1.5, 1.25}};
  return run;
}

TEST(Published, StandBesideTheRunsOwn) {
  RunResult run = with_losses();
  run.published_losses = kShipped;
  EXPECT_THAT(losses_text(run), HasSubstr("published: one device"));
  EXPECT_THAT(losses_text(run), HasSubstr("1     1              2.304             2.284"));
  EXPECT_THAT(losses_text(run), HasSubstr("2.320"));  // one device, epoch 1, step 1
  EXPECT_THAT(losses_text(run), HasSubstr("2.244"));  // DDP, epoch 1, step 201
  EXPECT_THAT(losses_text(run), HasSubstr("1.158"));  // DDP, epoch 2, step 1: the run's 3126
}

TEST(Published, AreShownWithoutBeingAskedFor) {
  ResultDocument document;
  document.runs = {with_losses()};
  EXPECT_THAT(terminal_text(document, {}), Not(HasSubstr("loss of the batch")));
  EXPECT_THAT(terminal_text(document, {.verbose = true}), HasSubstr("loss of the batch"));
  document.runs[0].published_losses = kShipped;
  EXPECT_THAT(terminal_text(document, {}), HasSubstr("published: DDP, rank 0"));
}

TEST(Published, AnotherFileIsBadInput) {
  const TemporaryFolder folder;
  EXPECT_TRUE(load_published_losses(kShipped));
  EXPECT_FALSE(load_published_losses(folder.path() + "/none.json"));
  EXPECT_FALSE(load_published_losses(folder.write("a.json", "{")));
  EXPECT_FALSE(load_published_losses(folder.write("b.json", R"({"columns": [{"of": 3}]})")));
}

}  // namespace
}  // namespace lockstep
