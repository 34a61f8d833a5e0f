#include "sim/report/svg/figure.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "sim/report/svg/curves.h"
#include "tests/sim/report/well_formed.h"

namespace lockstep::svg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Curves two_series() {
  Curves curves;
  curves.title = "step_ms over bucket_cap_mb";
  curves.x = {"bucket_cap_mb (MiB)", Scale::log2};
  curves.y.title = "step time (ms)";
  curves.series = {{.name = "a", .points = {{4, 100, {{98, 103}}, ""}, {1, 110, {}, "3 buckets"}}},
                   {.name = "b", .points = {{1, 120, {}, ""}}, .others = true},
                   {.name = "flat", .points = {{0, 90, {{85, 99}}, ""}}, .level = true}};
  curves.highlights = {{0, 4, "4 MiB"}};
  curves.highlight_meaning = "recommended";
  return curves;
}

std::string svg_of_chart(const std::variant<Curves, Histogram, Gantt>& chart) {
  Figure figure;
  figure.title = "t";
  figure.charts = {chart};
  return svg_of(figure);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Ticks, AreRoundEvenFewAndCoverAllValues) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-9, 12), sign(-1, 1);
  for (int i = 0; i < 20'000; ++i) {
    double low = std::pow(10, exponent(random)) * sign(random);
    double high = i % 5 == 0 ? low : std::pow(10, exponent(random)) * sign(random);
    if (low > high) std::swap(low, high);
    const int most = 4 + i % 12;
    const Ticks ticks = linear_ticks(low, high, most);
    const size_t n = ticks.at.size();
    ASSERT_GE(n, 2u);
    ASSERT_LE(n, static_cast<size_t>(most)) << low << " " << high;
    ASSERT_EQ(ticks.labels.size(), n);
    ASSERT_LE(ticks.low(), low);
    ASSERT_GE(ticks.high(), high);
    const double apart = (ticks.high() - ticks.low()) / static_cast<double>(n - 1);
    const double mantissa = apart / std::pow(10, std::floor(std::log10(apart * (1 + 1e-9))));
    ASSERT_TRUE(std::fabs(mantissa - 1) < 1e-6 || std::fabs(mantissa - 2) < 1e-6 ||
                std::fabs(mantissa - 5) < 1e-6)
        << low << " " << high << ": " << apart;
    for (size_t k = 1; k < n; ++k) {
      ASSERT_NEAR(ticks.at[k] - ticks.at[k - 1], apart, apart * 1e-6);
      ASSERT_NE(ticks.labels[k], ticks.labels[k - 1]) << low << " " << high;
    }
    // No tick could go at either end.
    if (low < high) {
      ASSERT_GT(ticks.at[1], low) << low << " " << high;
      ASSERT_LT(ticks.at[n - 2], high) << low << " " << high;
    }
  }
}

TEST(Ticks, HaveTheDigitsThatTellThemApart) {
  EXPECT_THAT(linear_ticks(0, 0.3, 5).labels, ElementsAre("0", "0.1", "0.2", "0.3"));
  EXPECT_THAT(linear_ticks(900, 2'100, 4).labels, ElementsAre("0", "1,000", "2,000", "3,000"));
  EXPECT_THAT(linear_ticks(0, 0, 4).labels, ElementsAre("0", "0.5", "1.0"));
  EXPECT_THAT(linear_ticks(0, 1e-310, 4).labels, ElementsAre("0", "0.5", "1.0"));
  EXPECT_THAT(linear_ticks(0, 1e15, 4).at, ElementsAre(0, 5e14, 1e15));
}

TEST(Ticks, OfALogarithmicAxisArePowersOfTwoThatCoverAllValues) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-40, 40);
  for (int i = 0; i < 20'000; ++i) {
    double low = std::exp2(exponent(random)), high = std::exp2(exponent(random));
    if (low > high) std::swap(low, high);
    const int most = 4 + i % 12;
    const Ticks ticks = log2_ticks(low, high, most);
    ASSERT_GE(ticks.at.size(), 2u);
    ASSERT_LE(ticks.at.size(), static_cast<size_t>(most));
    ASSERT_LE(ticks.low(), low);
    ASSERT_GE(ticks.high(), high);
    for (const double at : ticks.at) ASSERT_EQ(std::log2(at), std::round(std::log2(at)));
  }
  EXPECT_THAT(log2_ticks(1, 100, 13).labels,
              ElementsAre("1", "2", "4", "8", "16", "32", "64", "128"));
  EXPECT_THAT(log2_ticks(4, 4, 13).labels, ElementsAre("2", "4", "8"));
  EXPECT_THAT(log2_ticks(1, 1'048'576, 5).labels,
              ElementsAre("1", "32", "1,024", "32,768", "1,048,576"));
}

TEST(TicksDeathTest, ALogarithmicAxisRejectsWhatIsNotAboveZero) {
  EXPECT_DEATH(log2_ticks(0, 4, 8), "internal error");
  EXPECT_DEATH(log2_ticks(-1, 4, 8), "internal error");
  Curves curves = two_series();
  curves.series[0].points.push_back({0, 1, {}, ""});
  EXPECT_DEATH(svg_of_chart(curves), "internal error");
  curves.series[0].points.back() = {1, std::nan(""), {}, ""};
  EXPECT_DEATH(svg_of_chart(curves), "internal error");
}

TEST(Canvas, TextIsEscapedAndAlwaysXml) {
  EXPECT_EQ(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
  EXPECT_EQ(escaped(std::string("\x01\xff\0", 3)), " \xef\xbf\xbd ");
  EXPECT_EQ(escaped("\xef\xbf\xbe\xef\xbf\xbf"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(px(-0.01), "0");
  EXPECT_EQ(px(12.345), "12.3");
  EXPECT_EQ(shortened("h\xc3\xa9llo", 3), "h\xc3\xa9\xe2\x80\xa6");
  EXPECT_EQ(shortened("abc", 3), "abc");
}

TEST(Figure, NamesMayHoldAnyBytes) {
  const std::string evil = std::string("</svg><script>\"'&]]>\x02\xc0", 22);
  Curves curves = two_series();
  curves.title = curves.x.title = curves.y.title = curves.series[0].name = evil;
  curves.series[0].points[0].note = curves.highlights[0].label = evil;
  curves.notes = {evil};
  Gantt gantt;
  gantt.title = gantt.x.title = gantt.mark_meaning = evil;
  gantt.kinds = {{evil}};
  gantt.rows = {{evil, {{evil, {Bar{{{0, 1, 0}}, evil, evil, true}}}}, {{0.5, evil}}}};
  gantt.notes = {evil};
  const Histogram histogram{evil, {evil}, evil, {1}, {evil}};
  const std::string text = svg_of({evil, evil, {curves, histogram, gantt}, {evil}});
  EXPECT_EQ(why_not_well_formed(text), "");
  EXPECT_THAT(text, Not(HasSubstr("<script")));
}

TEST(Curves, ShowSeriesIntervalsLevelsAndTheRecommendedPoint) {
  const std::string text = svg_of_chart(two_series());
  EXPECT_EQ(why_not_well_formed(text), "");
  EXPECT_THAT(text,
              HasSubstr("a; bucket_cap_mb (MiB): 4; step time (ms): 100, 95 % interval 98 .. 103"));
  EXPECT_THAT(text, HasSubstr("step time (ms): 110; 3 buckets"));
  EXPECT_THAT(text, HasSubstr(">4 MiB<"));
  EXPECT_THAT(text, HasSubstr(">recommended<"));
  EXPECT_THAT(text, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(text, HasSubstr(">bucket_cap_mb (MiB)<"));
  EXPECT_EQ(count(text, "class=\"ring\""), 2u) << "one in the legend";
  EXPECT_EQ(text, svg_of_chart(two_series())) << "the same bytes for the same values";
}

TEST(Curves, OfNothingAndOfOnePointAreDrawn) {
  Curves empty;
  EXPECT_THAT(svg_of_chart(empty), HasSubstr("nothing to draw"));
  empty.series = {{.name = "a", .points = {}}};
  EXPECT_THAT(svg_of_chart(empty), HasSubstr("nothing to draw"));
  empty.series[0].points = {{3, 5, {{4, 6}}, ""}};
  EXPECT_EQ(why_not_well_formed(svg_of_chart(empty)), "");
  empty.series[0].level = true;
  EXPECT_EQ(why_not_well_formed(svg_of_chart(empty)), "");
}

TEST(Curves, ManyPointsAreThinnedOutButForExtremesAndSaySo) {
  Curves curves;
  curves.series = {{.name = "a", .points = {}}, {.name = "b", .points = {}}};
  for (int i = 0; i < 100'000; ++i)
    for (Series& series : curves.series)
      series.points.push_back({static_cast<double>(i), i == 77'777 ? 50.0 : i % 7, {}, "note"});
  curves.highlights = {{1, 12'345, "here"}};
  const std::string text = svg_of_chart(curves);
  EXPECT_LT(text.size(), 300'000u);
  EXPECT_THAT(text, HasSubstr("of 200,000 points are drawn"));
  EXPECT_EQ(why_not_well_formed(text), "");
  EXPECT_EQ(count(text, "class=\"ring\""), 2u) << "one in the legend";
}

TEST(Thinned, KeepsEndsExtremesAndWhatItIsTold) {
  std::vector<Point> points;
  for (int i = 0; i < 10'000; ++i)
    points.push_back({static_cast<double>(i),
                      i == 7'777   ? 50.0
                      : i == 3'333 ? -50.0
                                   : i % 7,
                      {},
                      ""});
  const std::vector<Point> left = thinned(points, 100, {1'234});
  EXPECT_LE(left.size(), 103u);
  std::vector<double> xs;
  for (const Point& point : left) xs.push_back(point.x);
  EXPECT_TRUE(std::is_sorted(xs.begin(), xs.end()));
  EXPECT_THAT(xs, testing::IsSupersetOf({0.0, 9'999.0, 7'777.0, 3'333.0, 1'234.0}));
  EXPECT_EQ(thinned(points, points.size(), {}).size(), points.size());
}

TEST(Curves, ScalingDividesTheLeastWorldSizesStepTime) {
  const std::vector<ScalingSeries> series = {
      {"ring", {{8, 200, {{190, 220}}}, {1, 100, {}}, {1024, 400, {}}}}};
  const Curves efficiency = efficiencies_of(series);
  ASSERT_EQ(efficiency.series[0].points.size(), 3u);
  EXPECT_EQ(efficiency.series[0].points[0].y, 50);
  EXPECT_EQ(efficiency.series[0].points[1].y, 100);
  EXPECT_EQ(efficiency.series[0].points[2].y, 25);
  EXPECT_NEAR(efficiency.series[0].points[0].interval->first, 100 * 100.0 / 220, 1e-9);
  EXPECT_EQ(efficiency.x.scale, Scale::log2);
  EXPECT_EQ(why_not_well_formed(svg_of({"s", "", {step_times_of(series), efficiency}, {}})), "");
}

TEST(Series, LookDifferentWithoutColour) {
  for (size_t a = 0; a < 12; ++a)
    for (size_t b = 0; b < a; ++b)
      EXPECT_NE(mark_path(a, 0, 0) + dash_class(a), mark_path(b, 0, 0) + dash_class(b)) << a << b;
}

TEST(Histogram, CountsEveryValueAndItsQuantilesAreByNearestRank) {
  EXPECT_EQ(quantile_of({3, 1, 2, 4}, 0.5), 2);
  EXPECT_EQ(quantile_of({3, 1, 2, 4}, 0.95), 4);
  EXPECT_EQ(quantile_of({7}, 0.01), 7);
  Histogram histogram{"t", {"skew (ms)"}, "collectives", {}, {}};
  EXPECT_THAT(svg_of_chart(histogram), HasSubstr("nothing to draw"));
  histogram.values = {0, 0, 0};
  EXPECT_THAT(svg_of_chart(histogram), HasSubstr(": 3 collectives"));
  histogram.values = {0, 2, 10};
  for (const char* bin : {": 0 .. 0.4: 1 ", ": 2 .. 2.4: 1 ", ": 9.6 .. 10: 1 "})
    EXPECT_THAT(svg_of_chart(histogram), HasSubstr(bin));
  histogram.values = {0.5, 0.5, 3, 3, 3, 10};
  for (const Scale scale : {Scale::linear, Scale::log2}) {
    histogram.x.scale = scale;
    const std::string text = svg_of_chart(histogram);
    EXPECT_EQ(why_not_well_formed(text), "");
    EXPECT_EQ(count(text, ": 2 collectives"), 1u);
    EXPECT_EQ(count(text, ": 3 collectives"), 1u);
    EXPECT_EQ(count(text, ": 1 collectives"), 1u);
    EXPECT_THAT(text, HasSubstr("median 3"));
  }
  histogram.values[0] = 0;
  EXPECT_DEATH(svg_of_chart(histogram), "internal error");
}

TEST(Gantt, BarsThatOverlapStandBelowEachOther) {
  const auto bar = [](double begin, double end) { return Bar{{{begin, end, 0}}, "", "", false}; };
  EXPECT_THAT(lines_of({bar(0, 5), bar(1, 3), bar(3, 9), bar(5, 6), bar(4, 4.5)}),
              ElementsAre(0, 1, 1, 0, 2));
  EXPECT_TRUE(lines_of({}).empty());
  Gantt gantt;
  EXPECT_THAT(svg_of_chart(gantt), HasSubstr("nothing to draw"));
  gantt.kinds = {{"forward", 0}, {"unused", 1}};
  gantt.mark_meaning = "a fault acts";
  gantt.rows = {{"rank 0", {{"compute", {bar(0, 5)}}, {"comm", {}}}, {}}};
  gantt.rows[0].tracks[0].bars[0].label = "bucket 17";
  const std::string text = svg_of_chart(gantt);
  EXPECT_THAT(text, Not(HasSubstr("unused")));
  EXPECT_THAT(text, Not(HasSubstr("a fault acts")));
  EXPECT_THAT(text, HasSubstr(">bucket 17<"));
  gantt.rows[0].tracks[0].bars[0].open = true;
  gantt.rows[0].marks = {{2, "fault 0: stop"}};
  EXPECT_THAT(svg_of_chart(gantt), HasSubstr("never ended"));
  EXPECT_THAT(svg_of_chart(gantt), HasSubstr("<title>fault 0: stop</title>"));
}

}  // namespace
}  // namespace lockstep::svg
