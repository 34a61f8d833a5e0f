#include "sim/report/collective_document.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;

CollectiveDocument sample_collective() {
  CollectiveDocument document;
  document.spec.groups = parse_groups("gloo,shm").value();
  document.spec.elements = {2};
  document.result.control = "detected";
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
  document.result.control = "missed";
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  EXPECT_THAT(collective_text(document, Style(false)), HasSubstr("void: "));
  document.result.control = "detected";
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
