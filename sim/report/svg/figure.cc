#include "sim/report/svg/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep::svg {
namespace {

constexpr double kHistogramLeft = 88, kHistogramHeight = 200;

// Bins begin and end at round values; the axis spans all of them.
struct Bins {
  std::vector<double> edges;
  std::vector<int64_t> counts;
  Ticks ticks;
};

// Parts of what lies between two ticks.
std::vector<double> edges_of(Scale scale, const Ticks& ticks) {
  int parts = 5;
  if (scale == Scale::log2) parts = std::log2(ticks.high() / ticks.low()) <= 10 ? 4 : 1;
  std::vector<double> edges;
  for (size_t i = 0; i + 1 < ticks.at.size(); ++i) {
    const double from = ticks.at[i], to = ticks.at[i + 1];
    for (int k = 0; k < parts; ++k) {
      const double part = static_cast<double>(k) / parts;
      edges.push_back(scale == Scale::log2 ? from * std::pow(to / from, part)
                                           : from + (to - from) * part);
    }
  }
  edges.push_back(ticks.high());
  return edges;
}

Bins bins_of(const Histogram& histogram) {
  for (const double value : histogram.values)
    LOCKSTEP_CHECK(std::isfinite(value), "a value is no number");
  const auto [low, high] = std::minmax_element(histogram.values.begin(), histogram.values.end());
  Bins bins;
  bins.ticks =
      histogram.x.scale == Scale::log2 ? log2_ticks(*low, *high, 13) : linear_ticks(*low, *high, 9);
  bins.edges = edges_of(histogram.x.scale, bins.ticks);
  bins.counts.resize(bins.edges.size() - 1);
  for (const double value : histogram.values) {
    const auto above = std::upper_bound(bins.edges.begin(), bins.edges.end(), value);
    const auto bin = std::clamp<int64_t>(above - bins.edges.begin() - 1, 0,
                                         static_cast<int64_t>(bins.counts.size()) - 1);
    ++bins.counts[static_cast<size_t>(bin)];
  }
  return bins;
}

void draw_bars(const Histogram& histogram, const Bins& bins, const Mapping& x, const Mapping& y,
               Canvas* canvas) {
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    if (bins.counts[i] == 0) continue;
    const double left = x(bins.edges[i]), right = x(bins.edges[i + 1]);
    const double top = y(static_cast<double>(bins.counts[i]));
    canvas->rect(
        left, top, right - left, y(0) - top, "v c0",
        fmt::format("{}: {} .. {}: {} {}", histogram.x.title, number_text(bins.edges[i]),
                    number_text(bins.edges[i + 1]), grouped(bins.counts[i]), histogram.counted));
  }
}

void draw_quantiles(const Histogram& histogram, const Box& box, const Mapping& x, Canvas* canvas) {
  double label_y = box.top - 22;
  for (const auto& [q, name] : {std::pair(0.5, "median"), {0.95, "95th percentile"}}) {
    const double value = quantile_of(histogram.values, q), at = x(value);
    canvas->line(at, label_y - 9, at, box.bottom(), q == 0.5 ? "l c5" : "l c5 d1");
    const bool left = at > box.right() - 180;
    canvas->text(at + (left ? -6 : 6), label_y, left ? "halo e" : "halo",
                 fmt::format("{} {}", name, number_text(value)));
    label_y += 16;
  }
}

}  // namespace

double quantile_of(std::vector<double> values, double q) {
  LOCKSTEP_CHECK(!values.empty() && q > 0 && q <= 1, "no such quantile");
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<int64_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double draw(const Histogram& histogram, double top, Canvas* canvas) {
  const double begin = draw_title(histogram.title, top, canvas);
  if (histogram.values.empty()) {
    canvas->text(kWidth / 2, begin + 20, "m muted", "there is nothing to draw");
    return draw_notes(histogram.notes, begin + 36, canvas);
  }
  const Box box{kHistogramLeft, begin + 40, kWidth - kHistogramLeft - kMargin - 8,
                kHistogramHeight};
  const Bins bins = bins_of(histogram);
  const int64_t most = *std::max_element(bins.counts.begin(), bins.counts.end());
  // Counts are whole: no ticks between them.
  const Ticks counts = linear_ticks(0, static_cast<double>(std::max<int64_t>(most, 4)), 7);
  const Mapping x(histogram.x.scale, bins.ticks.low(), bins.ticks.high(), box.left, box.right());
  const Mapping y(Scale::linear, 0, counts.high(), box.bottom(), box.top);
  draw_y_axis(box, {histogram.counted, Scale::linear}, counts, y, canvas);
  draw_x_axis(box, histogram.x, bins.ticks, x, canvas);
  draw_bars(histogram, bins, x, y, canvas);
  draw_quantiles(histogram, box, x, canvas);
  return draw_notes(histogram.notes, box.bottom() + kXAxisHeight, canvas);
}

std::string svg_of(const Figure& figure) {
  Canvas canvas;
  canvas.text(kMargin, 34, "head", shortened(figure.title, 85));
  double y = 56;
  for (const auto& chart : figure.charts) {
    y = std::visit([&](const auto& one) { return draw(one, y, &canvas); }, chart);
    y += 18;
  }
  y = draw_notes(figure.notes, y - 12, &canvas);
  const std::string size = fmt::format("{} {}", px(kWidth), px(std::ceil(y + 10)));
  return fmt::format(
             R"(<svg xmlns="http://www.w3.org/2000/svg" class="ls" role="img" )"
             R"(width="{}" height="{}" viewBox="0 0 {}" aria-labelledby="ls-title ls-desc">)"
             "\n",
             px(kWidth), px(std::ceil(y + 10)), size) +
         fmt::format("<title id=\"ls-title\">{}</title>\n<desc id=\"ls-desc\">{}</desc>\n",
                     escaped(figure.title), escaped(figure.description)) +
         style_elements() + "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n" +
         canvas.elements() + "</svg>\n";
}

}  // namespace lockstep::svg
