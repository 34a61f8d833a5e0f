#include "sim/launch/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

// A stranger's folder may hold anything where a run leaves a file.
TEST(Files, OnlyRegularFilesOfThisWorldAreRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_file(folder.write("plain", "text\n")), "text\n");
  EXPECT_EQ(read_file(folder.path() + "/nowhere"), "");
  EXPECT_EQ(read_file(folder.path()), "");
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_file(pipe), "");  // nobody will ever write
  EXPECT_EQ(log_tail(pipe, 3), "");
  EXPECT_EQ(read_file("/dev/zero"), "");
  const std::string sparse = folder.write("sparse", "x");
  std::filesystem::resize_file(sparse, kRunFileBytesMost + 1);
  EXPECT_EQ(read_file(sparse), "");
  EXPECT_NE(read_file("/proc/self/status"), "");  // says that it has no bytes
}

TEST(Files, ALogEndsWithItsLastLines) {
  const TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 10'000; ++line) text += "line " + std::to_string(line) + "\n";
  EXPECT_EQ(log_tail(folder.write("long", text), 2), "line 9998\nline 9999");
  EXPECT_EQ(log_tail(folder.write("short", "one\n"), 2), "one");
  EXPECT_EQ(log_tail(folder.write("empty", ""), 2), "");
}

}  // namespace
}  // namespace lockstep
