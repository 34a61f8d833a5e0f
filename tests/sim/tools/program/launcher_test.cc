#include "sim/tools/program/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const Words kRun = {"python3", "-m", "torch.distributed.run"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

OfLauncher left_of(const Words& argv) {
  InputErrors errors;
  const auto found = of_launcher(argv, &errors);
  EXPECT_TRUE(found && errors.empty()) << argv.back();
  return found.value_or(OfLauncher());
}

std::string error_of(const Words& argv) {
  InputErrors errors;
  EXPECT_FALSE(of_launcher(argv, &errors));
  return errors.empty() ? "" : errors[0].message;
}

TEST(Launcher, WhatItWouldStartIsLeft) {
  EXPECT_THAT(left_of(with(kRun, {"--standalone", "t.py", "--nproc_per_node", "5"})).command,
              ElementsAre("python3", "-u", "t.py", "--nproc_per_node", "5"));
  const OfLauncher module =
      left_of(with(kRun, {"--nproc_per_node=4", "--max-restarts", "2", "-m", "pkg.train"}));
  EXPECT_THAT(module.command, ElementsAre("python3", "-u", "-m", "pkg.train"));
  EXPECT_EQ(module.world, 4);
  EXPECT_THAT(module.left_out, HasSubstr("--max-restarts 2"));
  EXPECT_THAT(left_of(with(kRun, {"--no_python", "./train"})).command, ElementsAre("./train"));
  EXPECT_FALSE(left_of(with(kRun, {"--nproc-per-node", "auto", "t.py"})).world);
  EXPECT_FALSE(left_of(with(kRun, {"--nproc-per-node", "1", "t.py"})).world) << "2 to 64 ranks";
}

// "torchrun t.py -- --depth 2": argparse takes the first one for itself.
TEST(Launcher, DashesBeforeTheScriptsArgumentsAreTheLaunchers) {
  EXPECT_THAT(left_of(with(kRun, {"t.py", "--", "--depth", "--", "2"})).command,
              ElementsAre("python3", "-u", "t.py", "--depth", "--", "2"));
}

TEST(Launcher, VariablesBeforeIt) {
  const OfLauncher found =
      left_of(with({"env", "DEPTH=2", "OMP_NUM_THREADS=3"}, with(kRun, {"t.py", "A=1"})));
  EXPECT_THAT(found.command, ElementsAre("python3", "-u", "t.py", "A=1"));
  EXPECT_THAT(found.of_env, ElementsAre("DEPTH=2", "OMP_NUM_THREADS=3"));
  EXPECT_THAT(found.left_out, HasSubstr("env DEPTH=2 OMP_NUM_THREADS=3 python3 -m"));
  EXPECT_THAT(error_of(with({"env", "PATH=/x"}, with(kRun, {"t.py"}))), HasSubstr("PATH"));
  EXPECT_THAT(error_of({"/usr/bin/env", "A=1", "mpirun", "-n", "2"}), HasSubstr("starts ranks"));
  InputErrors errors;
  for (const Words& argv : {Words{"env", "A=1", "python3", "t.py"}, Words{"env", "-i", "torchrun"},
                            Words{"env", "A=1"}, Words{"env"}}) {
    EXPECT_FALSE(of_launcher(argv, &errors));
    EXPECT_TRUE(errors.empty());
  }
}

TEST(Launcher, WhatItTellsTheRanksIsKept) {
  const Words launch = {"python3", "-m", "accelerate.commands.launch"};
  const OfLauncher found =
      left_of(with(launch, {"--cpu", "--mixed_precision", "bf16", "--num_processes", "3", "t.py"}));
  EXPECT_THAT(found.variables, Contains("ACCELERATE_USE_CPU=true"));
  EXPECT_THAT(found.variables, Contains("ACCELERATE_MIXED_PRECISION=bf16"));
  EXPECT_THAT(found.variables, Contains("TORCHELASTIC_RUN_ID=lockstep"));
  EXPECT_EQ(found.world, 3);
}

TEST(Launcher, WhatSeveralTakeIsTakenOfEach) {
  const Words accelerate = {"python3", "-m", "accelerate.commands.launch"};
  for (const Words& launcher : {kRun, accelerate}) {
    const Words options = {"--rdzv_backend", "c10d", "--max_restarts=1", "--log-dir", "logs", "-m"};
    EXPECT_THAT(left_of(with(with(launcher, options), {"pkg.train"})).command,
                ElementsAre("python3", "-u", "-m", "pkg.train"));
  }
  EXPECT_THAT(error_of({"fabric", "run", "--rdzv-backend", "c10d", "t.py"}),
              HasSubstr("its option --rdzv-backend cannot be left out"));
}

TEST(Launcher, OthersAreRefusedOrNone) {
  InputErrors errors;
  for (const Words& argv : {Words{"python3", "t.py"}, Words{"python3", "-m", "train"},
                            Words{"accelerate", "config"}, Words{"sh", "-c", "torchrun t.py"}})
    EXPECT_FALSE(of_launcher(argv, &errors)) << argv[0];
  EXPECT_TRUE(errors.empty());
  EXPECT_THAT(error_of({"mpirun", "-n", "2", "t"}), HasSubstr("it starts ranks"));
  EXPECT_THAT(error_of(with(kRun, {"--nnodes=1:2", "t.py"})), HasSubstr("1:2 hosts"));
  EXPECT_THAT(error_of(with(kRun, {"--other", "t.py"})), HasSubstr("--other cannot be left out"));
  EXPECT_THAT(error_of(with(kRun, {"--role"})), HasSubstr("--role has no value"));
  EXPECT_THAT(error_of({"python3", "-m", "torch.distributed.launch", "t.py"}),
              HasSubstr("--local-rank"));
  EXPECT_EQ(left_of({"python3", "-m", "torch.distributed.launch", "--use_env", "t.py"}).command,
            (Words{"python3", "-u", "t.py"}));
}

}  // namespace
}  // namespace lockstep
