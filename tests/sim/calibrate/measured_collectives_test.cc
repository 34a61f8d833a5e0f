#include "sim/calibrate/measured_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {
namespace {

using testing::HasSubstr;

// As all_reduce_perf prints it; times out of place, then in place.
const std::string kHead =
    R"(# nThread 1 nGpus 3 minBytes 8 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on       node device  0 [0x07] An accelerator
#  Rank  1 Group  0 Pid   4711 on       node device  1 [0x0a] An accelerator
#  Rank  2 Group  0 Pid   4711 on       node device  2 [0x0b] An accelerator
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
)";
const std::string kSizes =
    R"(           0             0     float     sum      -1     0.21    0.00    0.00      0     0.20    0.00    0.00      0
           8             2     float     sum      -1    35.10    0.00    0.00      0    34.00    0.00    0.00      0
        1024           256     float     sum      -1    33.90    0.03    0.04      0    33.00    0.03    0.04    N/A
        4096          1024     float     sum      -1    40.50    0.10    0.13      0    39.50    0.10    0.14      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.0421
)";

std::string why(const std::string& text) {
  const auto table = measured_collectives_from(text, "nccl.txt");
  return table ? "" : to_text(table.errors().front());
}

TEST(MeasuredCollectives, OfNcclTestsTheTimeInPlaceCounts) {
  const auto table = measured_collectives_from(kHead + kSizes, "nccl.txt");
  ASSERT_TRUE(table);
  EXPECT_EQ(table.value().ranks, 3);
  // 34 and 33 us fall, and share their mean.
  const std::vector<CostModel::Row> rows = {{8, 33'500}, {1024, 33'500}, {4096, 39'500}};
  EXPECT_EQ(table.value().rows, rows);
}

TEST(MeasuredCollectives, AnOlderHeadHasNoRoot) {
  const std::string text =
      "#   Rank  0 Pid  2 on a device 0\n#   Rank  1 Pid  2 on a device 1\n"
      "#       size    count    type   redop     time   algbw   busbw  error     time   algbw   "
      "busbw  error\n"
      "      4096     1024   float     sum    40.50    0.10    0.13  2e-07    39.50    0.10    "
      "0.14  2e-07\r\n";
  const auto table = measured_collectives_from(text, "nccl.txt");
  ASSERT_TRUE(table);
  EXPECT_EQ(table.value().ranks, 2);
  EXPECT_EQ(table.value().rows.front().ns, 39'500);
}

TEST(MeasuredCollectives, AnotherOperationIsRefusedAtItsLine) {
  const std::string scatter =
      "        4096           340     float     sum      -1    40.5  0.1  0.1  0  39.5  0.1  0.1  "
      "0\n";
  EXPECT_EQ(why(kHead + scatter).substr(0, 79),
            "nccl.txt:11: error: 4096 bytes of 340 elements, sum of float: not an all-reduce");
  const std::string broadcast =
      "        4096          1024     float    none       0    40.5  0.1  0.1  0  39.5  0.1  0.1  "
      "0\n";
  EXPECT_NE(why(kHead + broadcast).find("not an all-reduce"), std::string::npos);
}

TEST(MeasuredCollectives, WhatIsWrongOrMissingIsSaid) {
  const std::string wrong =
      "        4096          1024     float     sum      -1    40.5  0.1  0.1  0  39.5  0.1  0.1  "
      "7\n";
  EXPECT_NE(why(kHead + wrong).find("7 wrong results of 4096 bytes"), std::string::npos);
  EXPECT_NE(why(kHead).find("no size of it has a time"), std::string::npos);
  EXPECT_NE(why("hello\n").find("no list of measured collectives"), std::string::npos);
  const size_t columns = kHead.find("#       size");
  EXPECT_NE(why(kHead.substr(columns) + kSizes).find("no \"Rank\" line"), std::string::npos);
}

std::string result(const std::string& operation, int wrong, const std::string& communicators) {
  return R"({"schema_version": 1, "lockstep_version": "0", "commit": "", "seed": 1,
    "verdict": "pass", "exit_code": 0, "duration_ms": 1,
    "machine": {"cpu": "", "cores": 2, "load": 0, "memory_mb": 1, "kernel": "", "environment": {}},
    "libraries": {"torch": "", "gloo": "", "blas": ""},
    "collective": {"operation": ")" +
         operation + R"(", "world_size": 6, "dtype": "float32", "iterations": 1, "warmup": 0,
      "timeout_ms": 1, "control": "detected", "results": 1, "broken": [], "wrong": )" +
         std::to_string(wrong) + R"(, "communicators": [)" + communicators + "]}}";
}

const std::string kOne = R"({"label": "gloo:ring", "kind": "gloo", "algorithm": "ring",
  "ranks_per_host": null, "average_busbw_gb_s": 1, "sizes": [{"bytes": 64, "count": 16,
  "time_ns": {"median": 1500, "low": 1000, "high": 2000}, "algbw_gb_s": 1, "busbw_gb_s": 1,
  "wrong": 0, "results": 1, "times_ns": [1500]}]})";

TEST(MeasuredCollectives, OurOwnResultIsRead) {
  const auto table = measured_collectives_from(result("all_reduce", 0, kOne), "a.json");
  ASSERT_TRUE(table) << to_text(table.errors().front());
  EXPECT_EQ(table.value(), (CostModel::Table{6, {{64, 1500}}}));
  EXPECT_NE(why(result("broadcast", 0, kOne)).find("of broadcast; "), std::string::npos);
  for (const auto& [word, operation] :
       {std::pair("all_gather", Operation::all_gather), {"all_to_all", Operation::all_to_all}})
    EXPECT_EQ(measured_collectives_from(result(word, 0, kOne), "a.json").value(),
              (CostModel::Table{6, {{64, 1500}}, operation}));
  EXPECT_NE(why(result("all_reduce", 3, kOne)).find("wrong results"), std::string::npos);
  EXPECT_NE(why(result("all_reduce", 0, kOne + "," + kOne)).find("of 2 communicators"),
            std::string::npos);
  EXPECT_NE(why("{}").find("collective"), std::string::npos);
}

TEST(MeasuredCollectives, NumbersThatCannotBeAreRefused) {
  const auto line = [](const std::string& bytes, const std::string& elements) {
    return kHead + bytes + " " + elements + " float sum -1 40.5 0.1 0.1 0 39.5 0.1 0.1 0\n";
  };
  for (const char* elements : {"-9223372036854775808", "-1", "9223372036854775807"})
    EXPECT_THAT(why(line("4", elements)), HasSubstr("not an all-reduce")) << elements;
  const auto read = nlohmann::json::parse(result("all_reduce", 0, kOne));
  for (const char* pointer :
       {"/collective/world_size", "/collective/communicators/0/sizes/0/bytes"}) {
    auto changed = read;
    changed[nlohmann::json::json_pointer(pointer)] = 2.5;
    EXPECT_THAT(why(changed.dump()), HasSubstr("expected a whole number")) << pointer;
  }
}

TEST(MeasuredCollectives, LongWordsAreCutShort) {
  const std::string word(1000, 'x');
  for (const std::string& text :
       {kHead + "8 2 " + word + " none -1 40.5 0.1 0.1 0 39.5 0.1 0.1 0\n",
        kHead + "8 2 float " + word + " 7 40.5 0.1 0.1 0 39.5 0.1 0.1 0\n",
        kHead + "8 2 float sum -1 40.5 0.1 0.1 0 " + word + " 0.1 0.1 0\n",
        kHead + "8 2 float sum -1 40.5 0.1 0.1 0 39.5 0.1 0.1 7." + std::string(1000, '0') + "\n",
        result(word, 0, kOne)}) {
    EXPECT_NE(why(text), "");
    EXPECT_LT(why(text).size(), 300U) << why(text);
  }
}

TEST(MeasuredCollectives, WhatFallsSharesItsMean) {
  EXPECT_EQ(isotonic({1, 3, 2, 5, 4, 3}), (std::vector<double>{1, 2.5, 2.5, 4, 4, 4}));
  EXPECT_EQ(isotonic({}), std::vector<double>());
}

}  // namespace
}  // namespace lockstep
