#include "sim/tools/program/zygote.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ProgramZygotes, KnowAPythonThatReachesTheAgent) {
  const std::vector<std::vector<std::string>> pythons = {
      {"python3", "train.py"},
      {"/usr/bin/python3.11", "-u", "train.py", "-E"},
      {"python", "-X", "dev", "-W", "once", "-Wignore", "train.py"},
      {"python3", "-um", "package.train"},
      {"python3", "-c", "import torch"},
      {"python3", "-Xfrozen_modules=on", "-O", "train.py"}};
  for (const auto& argv : pythons) EXPECT_TRUE(starts_python(argv)) << argv[0] << ' ' << argv[1];
}

TEST(ProgramZygotes, LeaveOtherCommandsAlone) {
  const std::vector<std::vector<std::string>> others = {{},
                                                        {"bash", "run.sh"},
                                                        {"torchrun", "train.py"},
                                                        {"python3-config", "train.py"},
                                                        {"./train.py"},
                                                        {"python3"},
                                                        {"python3", "-"},
                                                        {"python3", "-uE", "train.py"},
                                                        {"python3", "-I", "train.py"},
                                                        {"python3", "-S", "-m", "train"},
                                                        {"python3", "-X", "dev", "-E", "train.py"},
                                                        {"python3", "--version"}};
  for (const auto& argv : others)
    EXPECT_FALSE(starts_python(argv)) << (argv.empty() ? "nothing" : argv.back());
}

}  // namespace
}  // namespace lockstep
