#include "sim/tools/program/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "golden/reduction_order.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Vectors = std::vector<std::vector<double>>;

// Sums of these depend on the order of addition.
Vectors contributions(size_t ranks, size_t count) {
  Vectors all(ranks, std::vector<double>(count));
  for (size_t rank = 0; rank < ranks; ++rank)
    for (size_t e = 0; e < count; ++e)
      all[rank][e] = (static_cast<double>(e % 7) + 1.1) / static_cast<double>(3 * rank + 1);
  return all;
}

std::vector<double> summed(const Vectors& inputs, const std::string& order) {
  std::vector<const double*> from;
  for (const auto& input : inputs) from.push_back(input.data());
  std::vector<double> out(inputs[0].size());
  sum_in_order<double>(order, from, static_cast<int64_t>(out.size()), out.data());
  return out;
}

// What the agent leaves of one all-reduce of three ranks; the members spoil parts of it.
class Recorded : public testing::Test {
 protected:
  Recorded() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-replay-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    results_.assign(inputs_.size(), summed(inputs_, "ring"));
  }
  ~Recorded() override { fs::remove_all(folder_); }

  void write(size_t rank, const std::string& name = "all_reduce", int64_t elements = 600,
             const std::string& end = R"({"kind":"end","collectives":2,"bytes":9600})") {
    const std::string kept = fmt::format("{}/contributions-{}.bin", folder_, rank);
    std::ofstream out(kept, std::ios::binary);
    for (const auto* part : {&inputs_[rank], &results_[rank]})
      out.write(reinterpret_cast<const char*>(part->data()),
                static_cast<std::streamsize>(part->size() * sizeof(double)));
    std::ofstream lines(fmt::format("{}/collectives-{}.jsonl", folder_, rank));
    lines << fmt::format(R"({{"kind":"head","tap":"{}","rank":{},"torch":"2.15.0"}})", tap_, rank)
          << "\n"
          << fmt::format(R"({{"kind":"group","group":"0","ranks":[{}]}})", fmt::join(ranks_, ","))
          << "\n"
          << R"({"kind":"collective","group":"0","call":1,"name":"barrier","op":"","step":1,)"
          << R"("elements":0,"dtype":"","at_us":1,"input":-1,"result":-1})"
          << "\n"
          << fmt::format(R"({{"kind":"collective","group":"0","call":2,"name":"{}","op":"{}",)",
                         name, op_)
          << fmt::format(R"("step":4,"elements":{},"dtype":"float64","at_us":2,"input":0,)",
                         elements)
          << fmt::format(R"("result":{}}})", result_at_) << "\n"
          << end << "\n";
  }
  ProgramReplay replay() {
    for (size_t rank = 0; rank < inputs_.size(); ++rank) write(rank);
    return replay_program(folder_, 3);
  }

  std::string folder_, tap_ = "hooks", op_ = "sum";
  std::vector<int64_t> ranks_ = {0, 1, 2};
  int64_t result_at_ = 4800;
  Vectors inputs_ = contributions(3, 600), results_;
};

TEST_F(Recorded, WhatTheContributionsGiveInGloosOrderPasses) {
  const ProgramReplay found = replay();
  ASSERT_TRUE(found.finding);
  EXPECT_EQ(found.finding->verdict, Verdict::pass) << found.finding->words;
  EXPECT_TRUE(found.control_failed);
  EXPECT_EQ(found.finding->words, "1 of 1 sums over Gloo, bit for bit");
  EXPECT_EQ(found.collectives, 2);
  EXPECT_EQ(found.kept_bytes, 28800);
}

TEST_F(Recorded, OneBitOfOneRanksResultFails) {
  uint64_t bits = 0;
  std::memcpy(&bits, &results_[2][413], sizeof bits);
  bits ^= 1;
  std::memcpy(&results_[2][413], &bits, sizeof bits);
  const ProgramReplay found = replay();
  ASSERT_TRUE(found.finding);
  EXPECT_EQ(found.finding->verdict, Verdict::fail);
  EXPECT_EQ(found.finding->step, 4);
  EXPECT_THAT(found.finding->words, testing::StartsWith("element 413 is "));
  EXPECT_THAT(found.finding->words, testing::HasSubstr("on rank 2"));
}

TEST_F(Recorded, AnotherOrderOfAdditionFails) {
  results_.assign(3, summed(inputs_, "rank_order"));
  EXPECT_EQ(replay().finding->verdict, Verdict::fail);
}

// Of three parts of 201 elements, while the ring's are of 202.
TEST_F(Recorded, AReduceScatterIsAPartOfAnAllReduce) {
  inputs_ = contributions(3, 603);
  result_at_ = 603 * 8;
  const std::vector<double> whole = summed(inputs_, "ring");
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto at = whole.begin() + static_cast<int64_t>(rank) * 201;
    results_[rank].assign(at, at + 201);
    write(rank, "reduce_scatter_tensor", 603);
  }
  EXPECT_EQ(replay_program(folder_, 3).finding->verdict, Verdict::pass);
  results_[1][0] = -results_[1][0];
  write(1, "reduce_scatter_tensor", 603);
  const ProgramReplay wrong = replay_program(folder_, 3);
  EXPECT_EQ(wrong.finding->verdict, Verdict::fail);
  EXPECT_THAT(wrong.finding->words, testing::StartsWith("element 201 is "));
}

TEST_F(Recorded, ZerosAloneHaveNoControl) {
  for (auto& input : inputs_) input.assign(600, 0);
  results_.assign(3, std::vector<double>(600, 0));
  const ProgramReplay found = replay();
  EXPECT_EQ(found.finding->verdict, Verdict::pass);
  EXPECT_FALSE(found.control_failed);
  tap_ = "functions";  // a library's flags, while DistributedDataParallel's sums are not seen
  EXPECT_FALSE(replay().finding);
}

TEST_F(Recorded, WhatWasNotKeptIsNotJudged) {
  result_at_ = -1;
  EXPECT_EQ(replay().finding->verdict, Verdict::inconclusive);
  tap_ = "functions";  // which says that it does not see all
  EXPECT_FALSE(replay().finding);
  result_at_ = 4800;
  op_ = "other";
  EXPECT_FALSE(replay().finding);
}

TEST_F(Recorded, OtherCollectivesOnOtherRanksAreInconclusive) {
  replay();
  write(1, "broadcast");
  EXPECT_THAT(replay_program(folder_, 3).finding->words,
              testing::HasSubstr("all_reduce of 600 elements on rank 0, and broadcast"));
  write(1, "all_reduce", 599);
  EXPECT_EQ(replay_program(folder_, 3).finding->verdict, Verdict::inconclusive);
}

TEST_F(Recorded, ABrokenRecordingIsInconclusive) {
  replay();
  write(2, "all_reduce", 600, "");
  EXPECT_EQ(replay_program(folder_, 3).finding->verdict, Verdict::inconclusive);
  write(2, "all_reduce", 600, "{}");
  EXPECT_EQ(replay_program(folder_, 3).finding->verdict, Verdict::inconclusive);
  write(2, "all_reduce", 600, "[1");
  EXPECT_THAT(replay_program(folder_, 3).finding->words,
              testing::HasSubstr("collectives-2.jsonl:5:3: error: is no line of the agent: "));
  write(2);
  fs::resize_file(folder_ + "/contributions-2.bin", 5000);
  EXPECT_THAT(replay_program(folder_, 3).finding->words, testing::HasSubstr("rank 2 kept less"));
  ranks_ = {0, 1, 9};
  EXPECT_EQ(replay().finding->verdict, Verdict::inconclusive);
}

TEST_F(Recorded, NothingRecordedIsNoLane) {
  const ProgramReplay found = replay_program(folder_, 3);
  EXPECT_EQ(found.tap, TapKind::none);
  EXPECT_FALSE(found.finding);
}

}  // namespace
}  // namespace lockstep
