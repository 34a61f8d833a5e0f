#include "sim/report/simulate_svg.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "sim/report/svg/figure.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

constexpr double kWidePrediction = 16;

svg::Point predicted_point(const SimulatedLine& line, double x) {
  svg::Point point;
  point.x = x;
  point.y = line.numbers.step_ms;
  if (line.numbers.p50_ms < line.numbers.p95_ms)
    point.interval = {line.numbers.p50_ms, line.numbers.p95_ms};
  point.note = fmt::format("{} buckets, tail bucket {:.2f} MB, exposed {:.2f} ms", line.buckets,
                           line.tail_mb, line.numbers.exposed_ms);
  return point;
}

std::vector<SimulatedLine> drawn_lines(const SimulateDocument& document) {
  std::vector<SimulatedLine> lines;
  for (const SimulatedLine& line : document.lines)
    if (line.numbers.steps > 0) lines.push_back(line);
  return lines;
}

svg::Curves over_caps(const SimulateDocument& document, const std::vector<SimulatedLine>& lines) {
  svg::Curves chart;
  chart.title = "step time over bucket_cap_mb, in virtual time";
  chart.y.title = "step time (ms)";
  double least = 0, largest = 0;
  std::map<int64_t, size_t> series;
  for (const SimulatedLine& line : lines) {
    if (!line.cap_mb) continue;
    least = least == 0 ? *line.cap_mb : std::min(least, *line.cap_mb);
    largest = std::max(largest, *line.cap_mb);
    const auto place = series.try_emplace(line.ranks, chart.series.size());
    if (place.second) chart.series.push_back({fmt::format("{} ranks", line.ranks), {}});
    chart.series[place.first->second].points.push_back(predicted_point(line, *line.cap_mb));
  }
  chart.x = {"bucket_cap_mb (MiB)",
             largest > kWidePrediction * least ? svg::Scale::log2 : svg::Scale::linear};
  if (document.recommended_cap_mb) {
    chart.highlights.push_back(
        {0, *document.recommended_cap_mb, fmt::format("{} MiB", *document.recommended_cap_mb)});
    chart.highlight_meaning = "predicted best";
  }
  return chart;
}

// One series a cap.
std::vector<svg::ScalingSeries> scaling_of(const std::vector<SimulatedLine>& lines) {
  std::vector<svg::ScalingSeries> series;
  std::map<std::string, size_t> places;
  for (const SimulatedLine& line : lines) {
    const std::string name = line.cap_mb ? fmt::format("cap {} MiB", *line.cap_mb) : line.reducer;
    const auto place = places.try_emplace(name, series.size());
    if (place.second) series.push_back({name, {}});
    series[place.first->second].points.push_back({line.ranks, line.numbers.step_ms});
  }
  return series;
}

}  // namespace

std::string simulate_svg(const SimulateDocument& document) {
  const std::vector<SimulatedLine> lines = drawn_lines(document);
  std::set<double> caps;
  std::set<int64_t> worlds;
  for (const SimulatedLine& line : lines) {
    if (line.cap_mb) caps.insert(*line.cap_mb);
    worlds.insert(line.ranks);
  }
  svg::Figure figure;
  figure.title = lines.empty() ? "nothing was simulated" : lines.front().scenario;
  figure.description = "Step times of a simulated training over bucket caps and world sizes";
  if (caps.size() > 1 || worlds.size() <= 1) figure.charts.emplace_back(over_caps(document, lines));
  if (worlds.size() > 1) {
    const auto series = scaling_of(lines);
    figure.charts.emplace_back(svg::step_times_of(series));
    figure.charts.emplace_back(svg::efficiencies_of(series));
  }
  figure.notes = {"simulated machine: " + document.simulated,
                  fmt::format("lockstep {} ({})  seed {}", lockstep_version(), lockstep_commit(),
                              document.seed)};
  return svg::svg_of(figure);
}

}  // namespace lockstep
