#include "sim/tools/program/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

bool starts_python(const std::vector<std::string>& argv) {
  const auto command = python_command(argv);
  return command && command->has_agent;
}

TEST(ProgramCommand, KnowsAPythonThatReachesTheAgent) {
  const std::vector<std::vector<std::string>> pythons = {
      {"python3", "train.py"},
      {"/usr/bin/python3.11", "-u", "train.py", "-E"},
      {"python", "-X", "dev", "-W", "once", "-Wignore", "train.py"},
      {"python3", "-um", "package.train"},
      {"python3", "-c", "import torch"},
      {"python3", "-Xfrozen_modules=on", "-O", "train.py"}};
  for (const auto& argv : pythons) EXPECT_TRUE(starts_python(argv)) << argv[0] << ' ' << argv[1];
}

TEST(ProgramCommand, LeavesOtherCommandsAlone) {
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

std::string errors_of(const std::vector<std::string>& argv) {
  InputErrors errors;
  check_command(argv, &errors);
  return errors.empty() ? "" : to_text(errors[0]);
}

TEST(ProgramCommand, WhatCannotBeStartedIsBadInput) {
  EXPECT_THAT(errors_of({"no-such-program"}),
              HasSubstr("COMMAND no-such-program: no such program on PATH"));
  EXPECT_THAT(errors_of({"./no-such-program"}), HasSubstr("./no-such-program: no such program"));
  EXPECT_THAT(errors_of({"/etc/passwd"}), HasSubstr("no such program"));  // not to be executed
  EXPECT_THAT(errors_of({"/"}), HasSubstr("no such program"));
  EXPECT_EQ(errors_of({"sh", "-c", "no-such-program"}), "");
}

TEST(ProgramCommand, APythonWantsItsScript) {
  const std::string python = ::testing::TempDir() + "python3";
  std::ofstream(python) << "#!/bin/sh\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  EXPECT_THAT(errors_of({python, "-u", "no_such.py", "x"}), HasSubstr("no_such.py: no such file"));
  EXPECT_THAT(errors_of({python, "-E", "no_such.py"}), HasSubstr("no_such.py: no such file"));
  EXPECT_EQ(errors_of({python, python}), "");
  EXPECT_EQ(errors_of({python, ::testing::TempDir()}), "");  // with a __main__.py, maybe
  EXPECT_EQ(errors_of({python, "-m", "no_such"}), "");
  EXPECT_EQ(errors_of({python, "-c", "no_such.py"}), "");
  std::filesystem::remove(python);
}

}  // namespace
}  // namespace lockstep
