#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <set>

#include "sim/record/evidence.h"
#include "sim/record/recorder.h"

namespace lockstep {
namespace {

MismatchEvidence full_mismatch() {
  MismatchEvidence m;
  m.lane = Lane::replay;
  m.step = 3;
  m.state_kind = StateKind::gradient;
  m.tensor = "fc2.weight";
  m.bucket = 1;
  m.element = {64, 10};
  m.run_value = std::numeric_limits<double>::quiet_NaN();
  m.golden_value = -std::numeric_limits<double>::infinity();
  m.run_bits = "0x7fc00000";
  m.golden_bits = "0xff800000";
  m.ulp = m.max_ulp = UINT64_MAX;
  m.differing = 7;
  m.numel = 640;
  m.ranks = {1, 3};
  m.gradients_total = 4;
  m.gradients_wrong = 2;
  m.buckets_wrong = {1};
  m.one_ratio = true;
  m.ratio = 0.1 + 0.2;
  m.own_contribution = m.local_known = m.local_wrong = true;
  m.local_of_rank = 2;
  m.bits_flipped = 1;
  m.not_finite = 3;
  m.elements_wrong = 640;
  m.whole_buckets = m.misplaced = true;
  m.own_norm = 0.1 + 0.7;
  m.run_sketch = {0.1, -1e-300, 3};
  return m;
}

TEST(Evidence, ComesBackAsItWas) {
  Evidence evidence;
  evidence.error = {.kind = ErrorKind::timeout,
                    .text = "rank 2: \"Timed out\"\n",
                    .phase = "backward",
                    .rank = 1,
                    .step = 4,
                    .peer = 2,
                    .sequence = 9,
                    .bucket = 0,
                    .waited_ms = 601,
                    .deadline_ms = 600};
  evidence.mismatches = {full_mismatch(), {.lane = Lane::replica}};
  evidence.check_reasons = {{Check::manifest, 2, 0, "rank 2: fc1.weight differs from rank 0's"},
                            {Check::batch, 0, 3, ""}};
  evidence.final_hash = "00ff";
  evidence.golden = "{\"weights\":100}";
  const std::string text = to_json_text(evidence);
  const auto back = evidence_from_json_text(text);
  ASSERT_TRUE(back.has_value());
  // Every field is in the text, so equal texts are equal evidence.
  EXPECT_EQ(to_json_text(*back), text);
  EXPECT_EQ(back->error.kind, ErrorKind::timeout);
  EXPECT_EQ(back->error.text, evidence.error.text);
  EXPECT_EQ(back->error.peer, 2);
  ASSERT_EQ(back->check_reasons.size(), 2u);
  EXPECT_EQ(back->check_reasons[1].check, Check::batch);
  EXPECT_EQ(back->check_reasons[1].step, 3);
  ASSERT_EQ(back->mismatches.size(), 2u);
  const MismatchEvidence& m = back->mismatches[0];
  EXPECT_TRUE(std::isnan(m.run_value));
  EXPECT_EQ(m.golden_value, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(m.ulp, UINT64_MAX);
  EXPECT_EQ(m.run_sketch, full_mismatch().run_sketch);
  EXPECT_EQ(m.ratio, 0.1 + 0.2);
  EXPECT_EQ(m.element, (std::vector<int64_t>{64, 10}));
  EXPECT_EQ(m.local_of_rank, 2);
  EXPECT_TRUE(m.own_contribution && m.local_known && m.local_wrong && m.one_ratio);
  EXPECT_EQ(back->mismatches[1].bucket, -1);
}

TEST(Evidence, IsStrictJsonWithoutBareNan) {
  Evidence evidence;
  evidence.mismatches = {full_mismatch()};
  const auto document = nlohmann::json::parse(to_json_text(evidence));
  EXPECT_EQ(document["mismatches"][0]["run_value"], "NaN");
  EXPECT_EQ(document["mismatches"][0]["golden_value"], "-Infinity");
}

TEST(Evidence, TakesAnyBytesOfAnErrorText) {
  Evidence evidence;
  evidence.error.text = "caf\xe9 \xff";
  EXPECT_TRUE(evidence_from_json_text(to_json_text(evidence)).has_value());
}

TEST(Evidence, ReaderIsTolerant) {
  EXPECT_FALSE(evidence_from_json_text("").has_value());
  EXPECT_FALSE(evidence_from_json_text("{\"error\": \"cut sh").has_value());
  EXPECT_FALSE(evidence_from_json_text("[1]").has_value());
  const auto other = evidence_from_json_text(
      R"({"error": 5, "phase": "load", "later": 1, "mismatches": [7, {"lane": "of a later version"},
          {"lane": "exact", "step": "x", "bucket": 4}]})");
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->error.text, "");
  EXPECT_EQ(other->error.kind, ErrorKind::none);
  EXPECT_EQ(other->error.phase, "load");
  ASSERT_EQ(other->mismatches.size(), 1u);
  EXPECT_EQ(other->mismatches[0].lane, Lane::exact);
  EXPECT_EQ(other->mismatches[0].step, 0);
  EXPECT_EQ(other->mismatches[0].bucket, 4);
}

TEST(Evidence, EveryKindHasAWordOfItsOwn) {
  std::set<std::string> words;
  for (ErrorKind kind :
       {ErrorKind::none, ErrorKind::timeout, ErrorKind::peer_lost, ErrorKind::rejected,
        ErrorKind::closed, ErrorKind::checkpoint, ErrorKind::exception}) {
    Evidence evidence;
    evidence.error.kind = kind;
    EXPECT_EQ(evidence_from_json_text(to_json_text(evidence))->error.kind, kind) << to_word(kind);
    words.insert(to_word(kind));
  }
  EXPECT_EQ(words.size(), 7u);
  EXPECT_EQ(evidence_from_json_text(R"({"error_kind": "of a later version"})")->error.kind,
            ErrorKind::exception);
  EXPECT_TRUE(evidence_from_json_text(R"({"check_reasons": ["x", {"check": "later"}, {}]})")
                  ->check_reasons.empty());
}

TEST(Evidence, BitsAsText) {
  EXPECT_EQ(bits_text(0x3c4a9d1f, 4), "0x3c4a9d1f");
  EXPECT_EQ(bits_text(1, 4), "0x00000001");
  EXPECT_EQ(bits_text(1, 8), "0x0000000000000001");
}

TEST(Event, WordsOfTheContract) {
  EXPECT_STREQ(to_word(Phase::rendezvous), "rendezvous");
  EXPECT_STREQ(to_word(Phase::teardown), "teardown");
  EXPECT_STREQ(to_word(static_cast<Phase>(0)), "none");
  EXPECT_STREQ(to_word(Lane::float64), "float64");
  EXPECT_STREQ(to_word(Lane::one_device), "one_device");
}

}  // namespace

}  // namespace lockstep
