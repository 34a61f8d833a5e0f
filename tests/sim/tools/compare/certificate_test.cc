#include "sim/tools/compare/certificate.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "sim/report/text_style.h"
#include "sim/tools/compare/certificate_report.h"
#include "tests/sim/tools/compare/made.h"
#include "tests/sim/tools/compare/made_gradients.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::MadeLog;

constexpr float kX = 1.1F, kY = 0.3F, kZ = -0.7F;

float mean_before() { return kX / 3 + kY / 3 + kZ / 3; }
float mean_after() { return (kZ + kY + kX) / 3; }

// Three ranks, two steps; the first element of the reduced gradient rounds by its order.
MadeLog run(const std::string& id, float mean) {
  MadeLog log;
  log.id = id;
  log.local = {{{kX, 1}, {kY, 2}, {kZ, 3}}, {{kX, 2}, {kY, 2}, {kZ, 2}}};
  log.reduced = {{mean, 2}, {mean, 2}};
  return log;
}

class Certificates : public testing::FolderTest {
 protected:
  GradientLog read(const MadeLog& log, const std::string& folder) const {
    for (const auto& [name, bytes] : log.files()) write(folder + "/" + name, bytes);
    auto found = read_gradient_log(folder_ + "/" + folder);
    EXPECT_TRUE(found) << (found ? "" : to_text(found.errors()[0]));
    return std::move(found.value());
  }
  Certificate judge(const MadeLog& a, const MadeLog& b) const {
    return certify(read(a, "a"), read(b, "b"));
  }
  static std::string said(const Certificate& found) {
    return certificate_text(found, "a", "b", false, Style(false));
  }
};

MadeLog following(float mean) {
  MadeLog log = run("b", mean);
  log.follows = "a";
  return log;
}

TEST_F(Certificates, TheSameBitsPass) {
  const Certificate found = judge(run("a", mean_after()), run("b", mean_after()));
  EXPECT_EQ(found.verdict, Verdict::pass);
  EXPECT_EQ(found.steps, 2);
  EXPECT_EQ(found.elements, 4);
  EXPECT_EQ(found.differing, 0);
  EXPECT_THAT(said(found), HasSubstr("the same, bit for bit"));
}

TEST_F(Certificates, AnotherOrderIsExplainedElementForElement) {
  ASSERT_NE(mean_before(), mean_after());
  const Certificate found = judge(run("a", mean_after()), following(mean_before()));
  EXPECT_EQ(found.verdict, Verdict::pass);
  EXPECT_EQ(found.differing, 2);
  EXPECT_TRUE(found.control_failed);
  EXPECT_TRUE(found.means_a & bit_of(MeanBy::divided_after));
  EXPECT_FALSE(found.means_b & bit_of(MeanBy::divided_after));
  ASSERT_TRUE(found.first);
  EXPECT_EQ(found.first->step, 1);
  EXPECT_EQ(found.first->element, 0);
  EXPECT_THAT(said(found), HasSubstr("in nothing but the order in which gradients are added"));
}

// A third of the smallest number rounds to nothing, whatever its sign.
TEST_F(Certificates, WithoutAControlThatFailsNothingPasses) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  MadeLog a = run("a", 0);
  a.local = {{{kTiny}, {kTiny}, {kTiny}}};
  a.reduced = {{0}};
  MadeLog b = a;
  b.id = "b";
  b.reduced = {{kTiny}};
  for (const char* weights : {"1", "1234"}) {
    b.updated = {weights};
    const Certificate found = judge(a, b);
    EXPECT_EQ(found.verdict, Verdict::inconclusive);
    EXPECT_EQ(found.gap, CertificateGap::no_control);
  }
}

TEST_F(Certificates, NoOrderGivesAnotherBit) {
  const Certificate found =
      judge(run("a", mean_after()), following(std::nextafter(mean_after(), 100 * mean_after())));
  const Certificate far = judge(run("a", mean_after()), following(mean_after() * 1.0001F));
  EXPECT_EQ(far.verdict, Verdict::fail);
  EXPECT_EQ(far.difference, RunDifference::reduction);
  EXPECT_EQ(far.place.step, 1);
  EXPECT_NE(found.difference, RunDifference::update);
}

TEST_F(Certificates, WhatOneRunDividesInTwoWaysIsNotExplained) {
  MadeLog b = following(mean_before());
  b.reduced = {{mean_before(), 2}, {kX + kY + kZ, 2}};  // the second step sums
  const Certificate found = judge(run("a", mean_after()), b);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.difference, RunDifference::reduction);
  EXPECT_EQ(found.place.step, 2);
}

TEST_F(Certificates, ASumIsNoOtherRoundingOfAMean) {
  const Certificate found = judge(run("a", mean_after()), following(kX + kY + kZ));
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.difference, RunDifference::reduction);
}

TEST_F(Certificates, LocalGradientsMustHaveTheSameBits) {
  MadeLog b = following(mean_after());
  b.local[1][2][0] = 0.7F;
  const Certificate found = judge(run("a", mean_after()), b);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.difference, RunDifference::local_gradient);
  EXPECT_EQ(found.place.step, 2);
  EXPECT_EQ(found.place.rank, 2);
  b.local[1][2][0] = std::nextafter(kZ, 0.F);
  const Certificate rounded = judge(run("a", mean_after()), b);
  EXPECT_EQ(rounded.verdict, Verdict::inconclusive);
  EXPECT_EQ(rounded.gap, CertificateGap::local_rounding);
}

TEST_F(Certificates, WithoutFollowingWeightsPartAfterTheFirstDifference) {
  MadeLog b = run("b", mean_before());
  b.updated = {"1234"};
  const Certificate found = judge(run("a", mean_after()), b);
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(found.gap, CertificateGap::weights_apart);
  EXPECT_EQ(found.steps, 1);
  EXPECT_THAT(said(found), HasSubstr("--follow"));
  b.follows = "a";  // given the same gradients the weights should be the same
  b.rates = {0.2};
  const Certificate update = judge(run("a", mean_after()), b);
  EXPECT_EQ(update.difference, RunDifference::update);
  EXPECT_THAT(said(update), HasSubstr("the learning rate is 0.1 in A and 0.2 in B"));
}

TEST_F(Certificates, StartsAndParametersMustBeTheSame) {
  MadeLog b = run("b", mean_after());
  b.start = "8";
  EXPECT_EQ(judge(run("a", mean_after()), b).difference, RunDifference::start);
  b = run("b", mean_after());
  b.name = "v";
  EXPECT_EQ(judge(run("a", mean_after()), b).difference, RunDifference::parameters);
}

TEST_F(Certificates, RanksOfOneRunMustHoldTheSameWeights) {
  MadeLog b = following(mean_after());
  b.other_replica = 2;
  const Certificate found = judge(run("a", mean_after()), b);
  EXPECT_EQ(found.difference, RunDifference::replicas);
  EXPECT_EQ(found.place.rank, 2);
  EXPECT_THAT(said(found), HasSubstr("rank 2 of B holds another w than rank 0"));
}

TEST_F(Certificates, ClippingOnOneSideIsADifference) {
  MadeLog a = run("a", mean_after()), b = following(mean_after());
  a.given = {{0.1F, 0.2F}, {0.1F, 0.2F}};
  EXPECT_EQ(judge(a, b).difference, RunDifference::clipping);
  b.given = {{0.1F, std::nextafter(0.2F, 1.F)}, {0.1F, 0.2F}};  // its norm was rounded otherwise
  const Certificate found = judge(a, b);
  EXPECT_EQ(found.verdict, Verdict::pass);
  EXPECT_GT(found.clipping, 0);
  b.given[1][0] = 0.1001F;
  EXPECT_EQ(judge(a, b).difference, RunDifference::clipping);
}

TEST_F(Certificates, WhatIsNotWholeIsInconclusive) {
  MadeLog b = run("b", mean_after());
  b.ends = false;
  EXPECT_EQ(judge(run("a", mean_after()), b).gap, CertificateGap::not_ended);
  b = run("b", mean_after());
  b.local.pop_back();
  b.reduced.pop_back();
  EXPECT_EQ(judge(run("a", mean_after()), b).gap, CertificateGap::other_length);
  b = run("b", mean_after());
  b.why = "full";
  EXPECT_EQ(judge(run("a", mean_after()), b).gap, CertificateGap::stopped);
  b = run("b", mean_after());
  b.local = {{{kX, 1}, {kY, 2}}, {{kX, 1}, {kY, 2}}};
  std::filesystem::remove(folder_ + "/b/gradients-2.jsonl");
  EXPECT_EQ(judge(run("a", mean_after()), b).gap, CertificateGap::other_world);
}

TEST_F(Certificates, SeveralBackwardsThatNoOrderExplainsAreNoFailure) {
  MadeLog a = run("a", mean_after()), b = following(mean_after() * 1.0001F);
  a.backwards = b.backwards = 2;
  EXPECT_EQ(judge(a, b).gap, CertificateGap::several_backwards);
}

TEST_F(Certificates, ForeignLinesAreErrorsWithTheirPlace) {
  const auto error_of = [&](const std::string& line) {
    auto files = run("a", mean_after()).files();
    for (const auto& [name, bytes] : files) write("x/" + name, bytes);
    std::string& text = files["gradients-1.jsonl"];
    write("x/gradients-1.jsonl", text.substr(0, text.find('\n') + 1) + line + "\n");
    const auto found = read_gradient_log(folder_ + "/x");
    return found ? "" : to_text(found.errors()[0]);
  };
  const std::string tensor =
      R"({"kind": "local", "step": 1, "name": "w", "dtype": "float32", "first": 0, )";
  for (const std::string& line :
       {std::string("[]"), std::string(R"({"kind": "local"})"), std::string(R"({"kind": "what"})"),
        std::string(R"({"kind": "step", "step": 9})"),
        tensor + R"("elements": 2, "at": 900, "of": 2, "backwards": 1})",
        tensor + R"("elements": 3, "at": 0, "of": 2, "backwards": 1})",
        tensor + R"("elements": -1, "at": 0, "of": 2, "backwards": 1})",
        tensor + R"("elements": 2, "at": 9223372036854775807, "of": 2, "backwards": 1})"})
    EXPECT_THAT(error_of(line),
                HasSubstr("jsonl:2: error: is no line of lockstep run --gradients: "))
        << line;
  EXPECT_THAT(error_of(tensor + R"("elements": 1, "at": 0, "of": 2, "backwards": 1})" +
                       "\n"
                       R"({"kind": "step", "step": 1})"
                       "\n"
                       R"({"kind": "step", "step": 2})"),
              HasSubstr("do not make the whole tensor"));
}

}  // namespace
}  // namespace lockstep
