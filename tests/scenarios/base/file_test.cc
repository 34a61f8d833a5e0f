#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "scenarios/base/file.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string refusal_of(const std::string& path, int64_t most_bytes = kTextBytesMost) {
  const auto read = read_foreign_file(path, most_bytes);
  return read ? "" : to_text(read.errors().front());
}

TEST(ForeignFile, GivesItsBytes) {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\xff", 4);
  EXPECT_EQ(read_foreign_file(folder.write("some", bytes)).value(), bytes);
  EXPECT_EQ(read_foreign_file(folder.write("none", "")).value(), "");
  EXPECT_NE(read_foreign_file("/proc/self/status").value(), "");  // its size is said to be 0
}

TEST(ForeignFile, WhatIsNoRegularFileIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(pipe), EndsWith("this is a pipe; expected a regular file"));
  EXPECT_THAT(refusal_of("/dev/zero"), EndsWith("this is a device; expected a regular file"));
  EXPECT_THAT(refusal_of(folder.path()), EndsWith("this is a directory; expected a regular file"));
  EXPECT_THAT(refusal_of(folder.path() + "/no"),
              EndsWith("cannot be opened: No such file or directory"));
}

TEST(ForeignFile, TheLimitCountsBeforeMemoryIsTaken) {
  const TemporaryFolder folder;
  const std::string sparse = folder.write("sparse", "");
  std::filesystem::resize_file(sparse, uintmax_t{1} << 40);
  EXPECT_THAT(refusal_of(sparse), EndsWith("the file is too large; expected at most 16 MiB"));
  const std::string ten = folder.write("ten", "0123456789");
  EXPECT_EQ(refusal_of(ten, 10), "");
  EXPECT_THAT(refusal_of(ten, 9), HasSubstr("expected at most 9 bytes"));
  EXPECT_THAT(refusal_of("/proc/self/status", 100), HasSubstr("expected at most 100 bytes"));
}

TEST(ForeignFile, NamesAreShownSafely) {
  EXPECT_EQ(refusal_of("no\n::error::\x1b[31m"),
            "no ::error:: [31m: error: cannot be opened: No such file or directory");
}

TEST(ForeignFile, PartsAreReadWhereTheyAre) {
  const TemporaryFolder folder;
  const auto file = open_foreign_file(folder.write("ten", "0123456789"), 10);
  ASSERT_TRUE(file);
  EXPECT_EQ(file.value().bytes, 10);
  char two[2];
  EXPECT_TRUE(read_at(file.value().fd.get(), 8, two, 2));
  EXPECT_EQ(std::string(two, 2), "89");
  EXPECT_FALSE(read_at(file.value().fd.get(), 9, two, 2));
}

}  // namespace

}  // namespace lockstep
