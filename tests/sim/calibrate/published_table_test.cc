// What a table of published step times may be.
#include <gmock/gmock.h>

#include <string>

#include "sim/calibrate/published_table.h"
#include "sim/calibrate/row_doubts.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

Expected<PublishedTable> read(const std::string& rows, const std::string& more = "") {
  const TemporaryFolder folder;
  return read_published_table(folder.write(
      "published_table.json", R"({"format": "lockstep_table", "version": 1, "source": "made",)" +
                                  more + R"( "rows": [)" + rows + "]}"));
}

std::string error_of(const std::string& rows, const std::string& more = "") {
  const auto table = read(rows, more);
  return table ? "none" : to_text(table.errors().front());
}

TEST(PublishedTable, RatesAreThoseOfAllRanks) {
  const auto table = read(R"({"ranks": 1, "ms": 90, "synchronized": false},
                             {"ranks": 4, "samples_per_s": 1280, "bucket_cap_mb": 25, "fit": true})",
                          R"("samples_per_rank": 32,)");
  ASSERT_TRUE(table) << to_text(table.errors().front());
  EXPECT_FALSE(table.value().rows[0].synchronized);
  EXPECT_DOUBLE_EQ(table.value().rows[1].ms, 100);
  EXPECT_EQ(table.value().rows[1].cap_mb, 25);
  EXPECT_TRUE(table.value().rows[1].fitted);
}

TEST(PublishedTable, AStepInMsMaySayItsSamples) {
  const auto table = read(R"({"ranks": 1, "ms": 80, "samples_per_rank": 64, "fit": true},
                             {"ranks": 8, "ms": 14, "samples_per_rank": 8},
                             {"ranks": 8, "ms": 50})",
                          R"("samples_per_rank": 32,)");
  ASSERT_TRUE(table) << to_text(table.errors().front());
  EXPECT_EQ(table.value().rows[0].samples, 64);
  EXPECT_EQ(table.value().rows[1].samples, 8);
  EXPECT_EQ(table.value().rows[2].samples, 32);
  EXPECT_EQ(table.value().rows[1].ms, 14);
}

TEST(PublishedTable, WhatCannotBeIsRefusedAtItsPlace) {
  using testing::HasSubstr;
  const std::string fitted = R"({"ranks": 2, "ms": 9, "fit": true})";
  EXPECT_THAT(error_of(R"({"ranks": 2, "ms": 9})"), HasSubstr("0 rows have \"fit\": true"));
  EXPECT_THAT(error_of(fitted + "," + fitted), HasSubstr("2 rows have \"fit\": true"));
  EXPECT_THAT(error_of(R"({"ranks": 2, "fit": true})"), HasSubstr("ms and samples_per_s"));
  EXPECT_THAT(error_of(R"({"ranks": 2, "ms": 9, "samples_per_s": 9, "fit": true})"),
              HasSubstr("said twice"));
  EXPECT_THAT(error_of(R"({"ranks": 2, "samples_per_s": 9, "fit": true})"),
              HasSubstr("samples_per_rank"));
  EXPECT_THAT(error_of(fitted + R"(, {"ranks": 2, "ms": 9, "synchronized": false})"),
              HasSubstr("not synchronized"));
  EXPECT_THAT(error_of(R"({"ranks": 2, "ms": 9, "fit": true, "steps": 3})"), HasSubstr("steps"));
  EXPECT_THAT(error_of(R"({"ranks": 0, "ms": 9, "fit": true})"), HasSubstr("ranks"));
  EXPECT_THAT(error_of(R"({"ranks": 2, "ms": 0, "fit": true})"), HasSubstr("ms"));
  EXPECT_THAT(error_of(R"({"ranks": 2, "samples_per_s": 1e-300, "fit": true})",
                       R"("samples_per_rank": 1000000000,)"),
              HasSubstr("a step of inf ms; expected 3600000 ms at most"));
}

TEST(PublishedTable, OfManyWrongRowsTheFirstAreTold) {
  std::string rows = R"({"ranks": 1, "fit": true})";
  for (int i = 0; i < 5000; ++i) rows += R"(,{"ranks": 1})";
  const auto table = read(rows);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.errors().size(), 20U);
}

TEST(PublishedTable, RowsThatContradictEachOtherAreTold) {
  using testing::HasSubstr;
  const auto told = [](const std::string& rows) {
    std::string text;
    for (const InputError& warning : doubts_of(read(rows).value()))
      text += to_text(warning, "warning") + "\n";
    return text;
  };
  const std::string fitted = R"({"ranks": 8, "ms": 40, "fit": true})";
  EXPECT_THAT(told(fitted + ",\n" + R"({"ranks": 8, "ms": 50})"),
              testing::AllOf(HasSubstr("published_table.json:2:"), HasSubstr("warning"),
                             HasSubstr("50 ms here and 40 ms in line 1")));
  EXPECT_THAT(told(fitted + ",\n" + R"({"ranks": 1, "ms": 45, "synchronized": false})"),
              HasSubstr("8 ranks takes 40 ms, less than one rank's 45 ms in line 2"));
  EXPECT_EQ(told(fitted + R"(, {"ranks": 8, "ms": 40.2}, {"ranks": 1, "ms": 40.3})"), "");
  EXPECT_EQ(told(fitted + R"(, {"ranks": 8, "ms": 50, "bucket_cap_mb": 1})"), "");
  EXPECT_EQ(told(fitted + R"(, {"ranks": 16, "ms": 20, "accumulate_steps": 2})"), "");
  EXPECT_EQ(told(R"({"ranks": 1, "samples_per_s": 1000, "samples_per_rank": 64, "fit": true},
                    {"ranks": 8, "samples_per_s": 6000, "samples_per_rank": 8})"),
            "");
}

}  // namespace
}  // namespace lockstep
