#include "sim/tools/soak/ledger.h"

#include <gmock/gmock.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/tools/soak/soak.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

SoakSlice slice(SoakWork work, uint64_t seed, int64_t runs, const std::string& commit = "c1") {
  SoakSlice one;
  one.work = work;
  one.seed = seed;
  one.seeds = row_of(work).seeds;
  one.counts.runs = runs;
  one.duration_s = 9;
  one.commit = commit;
  one.libtorch = "1.13.1";
  return one;
}

class Ledger : public testing::Test {
 protected:
  Ledger() { std::filesystem::create_directory(folder_); }
  ~Ledger() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& text) { std::ofstream(ledger_path(folder_)) << text; }
  const std::string folder_ = testing::TempDir() + "lockstep_soak_" + std::to_string(getpid());
};

TEST_F(Ledger, IsReadAsItWasWritten) {
  EXPECT_TRUE(read_ledger(folder_).value().empty());
  SoakSlice written = slice(SoakWork::clean, 401, 200);
  written.counts.undecided = 2;
  written.counts.failures = {{"clean-402", "lockstep campaign --clean 1 --seed 402"}};
  SoakSlice broken = slice(SoakWork::faults, 21, 0);
  broken.broken = "was ended by signal 9 (Killed)";
  write(as_json(written).dump() + "\n" + as_json(broken).dump() + "\n");
  const auto read = read_ledger(folder_);
  ASSERT_TRUE(read);
  ASSERT_EQ(read.value().size(), 2u);
  EXPECT_EQ(as_json(read.value()[0]), as_json(written));
  EXPECT_EQ(as_json(read.value()[1]), as_json(broken));
}

TEST_F(Ledger, ALineThatWasCutShortIsLeftOut) {
  const std::string line = as_json(slice(SoakWork::clean, 1, 200)).dump();
  write(line + "\n" + line.substr(0, line.size() / 2));
  EXPECT_EQ(read_ledger(folder_).value().size(), 1u);
}

TEST_F(Ledger, WhatIsNoLineOfOneIsRefusedWithItsPlace) {
  auto bad = as_json(slice(SoakWork::clean, 1, 200));
  for (const auto& [key, value] : {std::pair<std::string, nlohmann::ordered_json>{"work", "naps"},
                                   {"seed", -1},
                                   {"runs", -5},
                                   {"runs", int64_t{1} << 60},
                                   {"seeds", 0},
                                   {"duration_s", -1},
                                   {"failures", 3}}) {
    auto line = bad;
    line[key] = value;
    write(line.dump() + "\n");
    const auto read = read_ledger(folder_);
    ASSERT_FALSE(read) << key;
    EXPECT_THAT(to_text(read.errors().front()), HasSubstr("ledger.jsonl:1")) << key;
  }
}

TEST(SoakTotals, CountASliceThatTwoFoldersHaveOnce) {
  const auto all = merged({slice(SoakWork::clean, 1, 200), slice(SoakWork::clean, 201, 200),
                           slice(SoakWork::clean, 1, 200), slice(SoakWork::clean, 1, 200, "c2")});
  EXPECT_EQ(all.size(), 3u);
  const auto sums = totals(all);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0].commit, "c1");
  EXPECT_EQ(sums[0].runs, 400);
  EXPECT_EQ(sums[1].runs, 200);
  EXPECT_EQ(sum_of(sums).runs, 600);
}

TEST(SoakTotals, BoundTheRateWhereThereWasNoFailure) {
  SoakTotal total;
  EXPECT_EQ(rate_below_95(total), 1);
  total.runs = 10'000;
  EXPECT_NEAR(rate_below_95(total), 3e-4, 1e-5);  // the rule of three
  total.failures = 1;
  EXPECT_EQ(rate_below_95(total), -1);
}

TEST(NextSlice, GoesOnBehindWhatTheLedgerHas) {
  SoakOptions options;
  options.seed = 1001;
  std::vector<SoakSlice> ledger;
  EXPECT_EQ(next_slice(options, ledger, SoakWork::clean).seed, 1001u);
  ledger.push_back(next_slice(options, ledger, SoakWork::clean));
  EXPECT_EQ(next_slice(options, ledger, SoakWork::clean).seed, 1001u + 500);
  EXPECT_EQ(next_slice(options, ledger, SoakWork::faults).seed, 1001u);
  ledger.push_back(slice(SoakWork::clean, 5000, 200));  // as one with another --seed left it
  EXPECT_GE(next_slice(options, ledger, SoakWork::clean).seed, 5500u);
}

TEST(NextSlice, ShardsTakeEachSeedOnce) {
  std::vector<uint64_t> firsts;
  for (int64_t index = 1; index <= 3; ++index) {
    SoakOptions options;
    options.shard = {index, 3};
    std::vector<SoakSlice> ledger;
    for (int i = 0; i < 4; ++i) {
      ledger.push_back(next_slice(options, ledger, SoakWork::mutants));
      firsts.push_back(ledger.back().seed);
    }
  }
  std::sort(firsts.begin(), firsts.end());
  for (size_t i = 0; i < firsts.size(); ++i) EXPECT_EQ(firsts[i], 1 + 500 * i);
}

}  // namespace
}  // namespace lockstep
