#include "sim/report/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/judge/metrics.h"
#include "sim/report/step_chart.h"
#include "sim/report/style.h"
#include "sim/report/svg/figure.h"

namespace lockstep {
namespace {

double length_of(const StepMetrics& step) {
  double sum = 0;
  for (const RankNumbers& rank : step.ranks) sum += rank.step_ms;
  return sum / static_cast<double>(std::max<size_t>(1, step.ranks.size()));
}

svg::Histogram skews_of(const Timeline& timeline, const std::vector<int64_t>& steps) {
  svg::Histogram chart;
  chart.title = "Skew: how far apart ranks arrive at a collective";
  chart.x.title = "skew (ms)";
  chart.counted = "collectives";
  const std::set<int64_t> measured(steps.begin(), steps.end());
  for (const Collective& b : timeline.collectives)
    if (b.ranks.size() > 1 && measured.count(b.step) > 0 && entered_by_all(b))
      chart.values.push_back(static_cast<double>(skew_ns(b)) * 1e-6);
  if (chart.values.empty()) return chart;
  const auto count = static_cast<int64_t>(chart.values.size());
  const auto measured_count = static_cast<int64_t>(measured.size());
  chart.notes.push_back(fmt::format("{} {} of {} measured {}.", grouped(count),
                                    plural(count, "collective"), grouped(measured_count),
                                    plural(measured_count, "step")));
  // One that is far from all others would leave one bar of them.
  const auto [low, high] = std::minmax_element(chart.values.begin(), chart.values.end());
  if (*low > 0 && *high > 32 * svg::quantile_of(chart.values, 0.5))
    chart.x.scale = svg::Scale::log2;
  return chart;
}

std::optional<int64_t> typical_step(const Timeline& timeline, const Metrics& metrics) {
  std::vector<std::pair<double, int64_t>> lengths;
  for (const StepMetrics& step : metrics.per_step) lengths.emplace_back(length_of(step), step.step);
  std::sort(lengths.begin(), lengths.end());
  if (!lengths.empty()) return lengths[(lengths.size() - 1) / 2].second;
  if (!timeline.steps.empty()) return timeline.steps.back().step;
  const std::vector<int64_t> steps = drawable_steps(timeline);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

}  // namespace

std::vector<int64_t> drawable_steps(const Timeline& timeline) {
  std::set<int64_t> steps;
  for (const auto& phases : timeline.phases)
    for (const PhaseInterval& phase : phases)
      if (phase.step > 0 && is_drawn(phase.phase)) steps.insert(phase.step);
  return {steps.begin(), steps.end()};
}

std::optional<int64_t> typical_step(const Timeline& timeline) {
  return typical_step(timeline, metrics_of(timeline));
}

std::string timeline_svg(const Timeline& timeline, const TimelinePicture& picture) {
  svg::Figure figure;
  figure.title = picture.name;
  const Metrics metrics = metrics_of(timeline);
  const std::vector<int64_t>& measured = metrics.steps;
  const auto typical = typical_step(timeline, metrics);
  const auto step = picture.step ? picture.step : typical;
  if (step) {
    svg::Gantt gantt = step_chart(timeline, picture, *step);
    if (step == typical && measured.size() > 1)
      gantt.notes.insert(gantt.notes.begin(),
                         fmt::format("Of the {} measured steps it has the median length.",
                                     grouped(static_cast<int64_t>(measured.size()))));
    figure.charts.emplace_back(std::move(gantt));
  }
  figure.charts.emplace_back(skews_of(timeline, measured));
  figure.description =
      fmt::format("What each of {} ranks did in {}, and the skew of collectives.",
                  grouped(timeline.world_size), step ? fmt::format("step {}", *step) : "no step");
  figure.notes = picture.notes;
  return svg_of(figure);
}

}  // namespace lockstep
