#include "sim/tools/program/launch.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <string>

#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

class Launch : public ::testing::Test {
 protected:
  void SetUp() override { launch_.folder = folder_.path(); }

  std::string why(int exit_code, int signal, const std::string& log) {
    std::ofstream(program_log(launch_.folder, 0)) << log;
    ProgramChild child;
    child.ended = true;
    child.exit_code = exit_code;
    child.signal = signal;
    ProgramEnd end;
    take_program_end(launch_, child, &end);
    return end.why;
  }

  TemporaryFolder folder_;
  ProgramLaunch launch_;
};

TEST_F(Launch, TheReasonIsTheLastLineOfItsLog) {
  EXPECT_EQ(why(0, 0, "well\n"), "");
  EXPECT_EQ(why(3, 0, "a\nno data\n"), "rank 0 ended with exit code 3: no data");
  EXPECT_EQ(why(-1, SIGSEGV, "a\n"), "rank 0 ended with signal 11: a");
}

TEST_F(Launch, OrWhatAnExceptionOfCppSaysAboveItsFrames) {
  std::string log = "terminate called\n  what():  no driver\n";
  for (int frame = 0; frame < 40; ++frame) log += "frame #" + std::to_string(frame) + ": f()\n";
  EXPECT_EQ(why(-1, SIGABRT, log), "rank 0 ended with signal 6: no driver");
  EXPECT_EQ(why(-1, SIGABRT, "abort\n"), "rank 0 ended with signal 6: abort");
  EXPECT_EQ(why(1, 0, log + "Error: x\n"), "rank 0 ended with exit code 1: Error: x");
}

TEST_F(Launch, HowARankEndedThatTheProgramStartedMayBeUnknown) {
  launch_.start.spawns = true;
  EXPECT_EQ(why(-1, 0, "saved\n"), "how rank 0 ended is not known: saved");
  EXPECT_EQ(why(1, 0, "x\n"), "the program ended with exit code 1: x");
}

}  // namespace
}  // namespace lockstep
