#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

#include "scenarios/json/schema.h"
#include "sim/tools/collective/report.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

CollectiveSpec two_by_two() {
  CollectiveSpec spec;
  spec.groups = parse_groups("gloo,shm").value();
  spec.elements = {1000, 4000};
  spec.iterations = 3;
  return spec;
}

// Two ranks; rank 1 comes `late` ns after rank 0 and both end 2000 ns after that.
std::vector<RankFile> measured(const CollectiveSpec& spec, int64_t late) {
  std::vector<RankFile> ranks(2);
  for (int64_t rank = 0; rank < 2; ++rank)
    for (int64_t row = 0; row < spec.rows(); ++row) {
      RankRow one{row, {}, {}, 0, 3};
      for (int64_t i = 0; i < spec.iterations; ++i) {
        one.begin_ns.push_back(10'000 * i + rank * late);
        one.end_ns.push_back(10'000 * i + late + 2000 - 100 * rank);
      }
      ranks[static_cast<size_t>(rank)].rows.push_back(one);
      ranks[static_cast<size_t>(rank)].control_wrong = 1 - rank;
    }
  return ranks;
}

TEST(CollectiveResult, TimeIsFromTheLastArrivalToTheLastEnd) {
  const CollectiveSpec spec = two_by_two();
  const CollectiveResult result = collective_result(spec, measured(spec, 700));
  ASSERT_EQ(result.rows.size(), 4u);
  EXPECT_EQ(result.rows[1].group, 0u);
  EXPECT_EQ(result.rows[1].bytes, 16000);
  EXPECT_EQ(result.rows[2].group, 1u);
  EXPECT_THAT(result.rows[0].times_ns, ElementsAre(2000, 2000, 2000));
  EXPECT_DOUBLE_EQ(result.rows[0].time_ns.value, 2000);
  EXPECT_DOUBLE_EQ(result.rows[0].algbw_gb_s, 2);  // 4000 bytes in 2000 ns
  EXPECT_DOUBLE_EQ(result.rows[1].busbw_gb_s, 8);
  EXPECT_DOUBLE_EQ(average_busbw(result, 1), 5);
  EXPECT_EQ(result.results, 24);
  EXPECT_EQ(result.wrong, 0);
  EXPECT_EQ(result.control, ControlVerdict::detected);
}

TEST(CollectiveResult, PartsAreCountedByRankAndBytesByTheWhole) {
  CollectiveSpec spec = two_by_two();
  spec.operation = "reduce_scatter";
  const CollectiveResult result = collective_result(spec, measured(spec, 0));
  EXPECT_EQ(result.rows[0].count, 500);
  EXPECT_EQ(result.rows[0].bytes, 4000);
  EXPECT_DOUBLE_EQ(result.rows[0].busbw_gb_s, 1);
}

TEST(CollectiveResult, RowsThatARankHasNotFinishedAreLeftOut) {
  const CollectiveSpec spec = two_by_two();
  std::vector<RankFile> ranks = measured(spec, 0);
  ranks[1].rows.resize(2);
  const CollectiveResult result = collective_result(spec, ranks);
  ASSERT_EQ(result.rows.size(), 2u);
  EXPECT_EQ(result.rows[1].group, 1u);
  EXPECT_EQ(result.rows[1].bytes, 4000);
}

TEST(CollectiveResult, WrongElementsAreAddedUpAndAControlMayBeMissed) {
  const CollectiveSpec spec = two_by_two();
  std::vector<RankFile> ranks = measured(spec, 0);
  ranks[0].rows[0].wrong = 2;
  ranks[1].rows[3].wrong = 5;
  ranks[0].control_wrong = 0;
  CollectiveResult result = collective_result(spec, ranks);
  EXPECT_EQ(result.wrong, 7);
  EXPECT_EQ(result.rows[0].wrong, 2);
  EXPECT_EQ(result.control, ControlVerdict::missed);
  ranks[1].control_wrong.reset();
  EXPECT_EQ(collective_result(spec, ranks).control, ControlVerdict::not_run);
  EXPECT_EQ(collective_result(spec, {}).control, ControlVerdict::not_run);
}

TEST(RankFile, KeepsWhatWasWrittenBeforeAFailure) {
  const std::string path = testing::TempDir() + "/rank_file." + std::to_string(::getpid());
  std::filesystem::remove(path);
  append_control(path, 3);
  append_row(path, {4, {10, 20}, {11, 22}, 5, 7});
  append_error(path, "gloo:ring at 8 bytes: peer \xff lost");
  std::ofstream(path, std::ios::app) << R"({"row": 5, "begin)";
  const RankFile file = read_rank_file(path);
  std::filesystem::remove(path);
  ASSERT_EQ(file.rows.size(), 1u);
  EXPECT_EQ(file.rows[0].row, 4);
  EXPECT_THAT(file.rows[0].begin_ns, ElementsAre(10, 20));
  EXPECT_THAT(file.rows[0].end_ns, ElementsAre(11, 22));
  EXPECT_EQ(file.rows[0].wrong, 5);
  EXPECT_EQ(file.rows[0].results, 7);
  EXPECT_EQ(file.control_wrong, 3);
  EXPECT_THAT(file.error, testing::StartsWith("gloo:ring at 8 bytes"));
  EXPECT_TRUE(read_rank_file("/nowhere").rows.empty());
}

TEST(RankFile, EndsAtALineThatIsNotOurs) {
  const std::string path = testing::TempDir() + "/rank_lines." + std::to_string(::getpid());
  for (const std::string line :
       {R"({"row": 5})", R"({"row": "x"})", R"({"error": 3})", R"({"control_wrong": []})",
        R"({"row": 1, "begin_ns": [1], "end_ns": [], "wrong": 0, "results": 0})",
        R"({"row": 1, "begin_ns": [1e99], "end_ns": [2], "wrong": 0, "results": 0})",
        R"({"row": 0.5, "begin_ns": [1], "end_ns": [2], "wrong": 0, "results": 0})",
        R"({"control_wrong": 39223372036854775807})"}) {
    std::filesystem::remove(path);
    append_control(path, 3);
    std::ofstream(path, std::ios::app) << line << "\n";
    append_row(path, {4, {10}, {11}, 0, 7});
    const RankFile file = read_rank_file(path);
    EXPECT_TRUE(file.rows.empty()) << line;
    EXPECT_EQ(file.control_wrong, 3) << line;
  }
  std::filesystem::remove(path);
}

TEST(RankFile, IsReadInPiecesToItsEnd) {
  const std::string path = testing::TempDir() + "/rank_pieces." + std::to_string(::getpid());
  std::filesystem::remove(path);
  const std::vector<int64_t> times(220'000, 1'234'567);  // a line of some 4 MB
  append_row(path, {0, {1}, {2}, 0, 7});
  append_row(path, {1, times, times, 0, 7});
  for (int64_t row = 2; row < 20'000; ++row) append_row(path, {row, {1}, {2}, 0, 7});
  const RankFile file = read_rank_file(path);
  std::filesystem::remove(path);
  ASSERT_EQ(file.rows.size(), 20'000u);
  EXPECT_EQ(file.rows[1].end_ns, times);
  for (int64_t row = 0; row < 20'000; ++row) ASSERT_EQ(file.rows[row].row, row);
}

TEST(RankFile, EndsWhereNobodyWrote) {
  const std::string path = testing::TempDir() + "/rank_hole." + std::to_string(::getpid());
  std::filesystem::remove(path);
  append_row(path, {4, {10}, {11}, 0, 7});
  std::ofstream(path, std::ios::app) << R"({"control_wrong": 3})";  // whole, but its end is missing
  std::filesystem::resize_file(path, kResultBytesMost);
  struct rusage before, after;
  ::getrusage(RUSAGE_SELF, &before);
  const RankFile file = read_rank_file(path);
  ::getrusage(RUSAGE_SELF, &after);
  std::filesystem::remove(path);
  EXPECT_EQ(file.rows.size(), 1u);
  EXPECT_FALSE(file.control_wrong.has_value());
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 100'000);  // kB; the hole is 512 MiB
}

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;

CollectiveDocument sample_collective() {
  CollectiveDocument document;
  document.spec.groups = parse_groups("gloo,shm").value();
  document.spec.elements = {2};
  document.result.control = ControlVerdict::detected;
  document.result.results = 100;
  document.result.rows = {{0, 8, 2, {20'000, 19'000, 21'500}, 0.0004, 0.0004, 0, 50, {20'000}},
                          {1, 8, 2, {4'000, 3'900, 4'100}, 0.002, 0.002, 0, 50, {4'000}}};
  return document;
}

bool fits_schema(const CollectiveDocument& document) {
  return schema_errors(collective_schema_text(), json::parse(as_json(document).dump())).empty();
}

TEST(CollectiveDocument, TheColumnsOfNcclTestsAndTheAverageLast) {
  CollectiveDocument document = sample_collective();
  conclude(&document);
  EXPECT_EQ(document.exit_code, 0);
  const std::string text = collective_text(document, Style(false));
  EXPECT_THAT(text, HasSubstr("communicator  size B  count  type     redop  time us"));
  EXPECT_THAT(text,
              HasSubstr("gloo:ring          8      2  float32  sum      20.00  19.00 .. 21.50"));
  EXPECT_THAT(text, HasSubstr("doc/PERFORMANCE.md"));
  EXPECT_THAT(text,
              EndsWith("pass: 2 lines, 100 results compared bit for bit, wrong: 0, controls: "
                       "1 of 1; average bus bandwidth GB/s: gloo:ring 0.000, shm:ring 0.002\n"));
  EXPECT_THAT(collective_csv(document),
              HasSubstr("shm:ring,8,2,float32,sum,4000,3900,4100,0.002,0.002,0\n"));
  EXPECT_TRUE(fits_schema(document));
}

TEST(CollectiveDocument, WrongElementsFailAndWhatIsNotSureIsInconclusive) {
  CollectiveDocument document = sample_collective();
  document.result.wrong = 1;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 1);
  EXPECT_THAT(collective_answer(document), HasSubstr("fail: 2 lines"));
  document.broken = "rank-1: gone";  // what is wrong stays wrong
  conclude(&document);
  EXPECT_EQ(document.exit_code, 1);
  document.result.wrong = 0;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  EXPECT_THAT(collective_text(document, Style(false)), HasSubstr("broke down: rank-1: gone\n"));
  EXPECT_TRUE(fits_schema(document));
  document.broken.clear();
  document.result.control = ControlVerdict::missed;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  EXPECT_THAT(collective_text(document, Style(false)), HasSubstr("void: "));
  document.result.control = ControlVerdict::detected;
  document.result.rows.pop_back();
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  document.signal = 2;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 130);
}

TEST(CollectiveDocument, NothingMeasuredIsAnAnswerToo) {
  CollectiveDocument document = sample_collective();
  document.result = {};
  document.broken = "no worker";
  conclude(&document);
  EXPECT_THAT(collective_text(document, Style(false)),
              HasSubstr("inconclusive: 0 lines, 0 results"));
  EXPECT_TRUE(fits_schema(document));
}

}  // namespace

}  // namespace lockstep
