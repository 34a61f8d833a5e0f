#include "sim/report/sweep_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/report/document.h"
#include "sim/report/svg/figure.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

// From this ratio of the largest cap to the least on, caps stand on a logarithmic axis.
constexpr double kWideRange = 16;

const std::map<std::string, std::string> kAxes = {{"step_ms", "step time (ms)"},
                                                  {"backward_ms", "backward time (ms)"},
                                                  {"exposed_ms", "exposed_comm (ms)"},
                                                  {"overlap", "overlap"},
                                                  {"skew_ms", "skew (ms)"},
                                                  {"tail_mb", "tail bucket (MB)"},
                                                  {"buckets", "buckets"},
                                                  {"wrong", "runs whose replicas differ"}};

// What the lines are drawn over: caps, if a group has several.
enum class Over { caps, world_sizes };

Over drawn_over(const std::vector<CellResult>& lines) {
  std::map<std::string, int> caps;
  std::set<int64_t> worlds;
  for (const CellResult& line : lines) {
    if (line.cell.cap_mb && ++caps[group_of(line.cell)] > 1) return Over::caps;
    worlds.insert(line.cell.world_size);
  }
  return worlds.size() > 1 || caps.empty() ? Over::world_sizes : Over::caps;
}

// Lines of one series have the same.
std::string series_of(const Cell& cell, Over over) {
  if (over == Over::caps) return group_of(cell);
  const std::string label = label_of(cell);  // begins with the world size
  return label.substr(std::min(label.size(), label.find(' ') + 1));
}

std::string note_of(const CellResult& line) {
  std::string note = fmt::format("{} {}, tail bucket {:.2f} MB", line.buckets,
                                 plural(line.buckets, "bucket"), line.tail_mb);
  for (const double cap : line.cell.same_caps_mb)
    note += fmt::format("; same buckets: {} MiB", cap);
  return note;
}

svg::Point point_of(const CellResult& line, const Estimate& value, Over over) {
  const auto world_size = static_cast<double>(line.cell.world_size);
  svg::Point point;
  point.x = over == Over::caps ? line.cell.cap_mb.value_or(0) : world_size;
  point.y = value.value;
  if (value.low < value.high) point.interval = {value.low, value.high};
  point.note = note_of(line);
  return point;
}

svg::Scale scale_of_caps(const std::vector<CellResult>& lines) {
  double least = 0, largest = 0;
  for (const CellResult& line : lines) {
    if (!line.cell.cap_mb) continue;
    least = least == 0 ? *line.cell.cap_mb : std::min(least, *line.cell.cap_mb);
    largest = std::max(largest, *line.cell.cap_mb);
  }
  return least > 0 && largest > kWideRange * least ? svg::Scale::log2 : svg::Scale::linear;
}

svg::Curves chart_of(const SweepDocument& document, const std::string& metric, Over over) {
  svg::Curves chart;
  chart.y.title = kAxes.count(metric) > 0 ? kAxes.at(metric) : metric;
  chart.title = metric + (over == Over::caps ? " over bucket_cap_mb" : " over world_size");
  chart.x = over == Over::caps ? svg::Axis{"bucket_cap_mb (MiB)", scale_of_caps(document.lines)}
                               : svg::Axis{"world size (ranks)", svg::Scale::log2};
  std::map<std::string, size_t> places;
  for (const CellResult& line : document.lines) {
    const auto value = metric_of(line, metric);
    if (!value) continue;
    const std::string name = series_of(line.cell, over);
    const auto [place, fresh] = places.try_emplace(name, chart.series.size());
    if (fresh) chart.series.push_back({.name = name, .points = {}});
    svg::Series& series = chart.series[place->second];
    series.level = over == Over::caps && !line.cell.cap_mb;
    series.points.push_back(point_of(line, *value, over));
  }
  return chart;
}

void add_recommendations(const SweepDocument& document, svg::Curves* chart) {
  chart->highlight_meaning = "recommended";
  for (const Contrast& one : document.caps) {
    const Cell& best = document.lines[one.ratio.value < 1 ? one.cell : one.against].cell;
    const std::string group = group_of(best);
    chart->notes.push_back(document.caps.size() > 1 ? group + ": " + one.text : one.text);
    if (!one.significant) continue;
    for (size_t i = 0; i < chart->series.size(); ++i)
      if (chart->series[i].name == group)
        chart->highlights.push_back({i, *best.cap_mb, fmt::format("{} MiB", *best.cap_mb)});
  }
}

// All rows of those series that a measured line is compared with.
void add_published(const SweepDocument& document, svg::Curves* chart) {
  const Reference& reference = *document.reference;
  for (const Reference::Series& published : reference.series) {
    const auto compared = [&](const CellResult& line) {
      const auto& reducers = published.reducers;
      return line.cell.world_size == published.world_size && line.cell.cap_mb &&
             std::find(reducers.begin(), reducers.end(), line.cell.reducer) != reducers.end();
    };
    if (std::none_of(document.lines.begin(), document.lines.end(), compared)) continue;
    svg::Series series;
    series.name = fmt::format("published, world_size={}", published.world_size);
    series.others = true;
    for (const auto& [cap, value] : published.rows)
      if (cap > 0) series.points.push_back({cap, value, {}, published.of});
    chart->series.push_back(std::move(series));
  }
  chart->notes.push_back(
      fmt::format("Published: {} of {}: {}", reference.metric, reference.source, reference.what));
}

std::string head_of(const SweepDocument& document) {
  ResultDocument head;
  head.machine = document.machine;
  head.libraries = document.libraries;
  head.seed = document.seed;
  return head_line(head);
}

}  // namespace

std::string sweep_svg(const SweepDocument& document) {
  const Over over = drawn_over(document.lines);
  svg::Figure figure;
  figure.title = document.scenario + ": sweep";
  svg::Curves step = chart_of(document, "step_ms", over);
  if (over == Over::caps) add_recommendations(document, &step);
  const bool published = document.reference.has_value() && over == Over::caps;
  if (published && document.reference->metric == "step_ms") add_published(document, &step);
  figure.charts.emplace_back(std::move(step));
  if (published && document.reference->metric != "step_ms") {
    svg::Curves compared = chart_of(document, document.reference->metric, over);
    add_published(document, &compared);
    figure.charts.emplace_back(std::move(compared));
  }
  const std::string how = fmt::format(
      "Medians of {} {}, each of {} steps after {}; bands and bars are 95 % intervals.",
      document.rounds, plural(document.rounds, "round"), document.steps, document.warmup);
  figure.description = how + " " + sweep_answer(document);
  figure.notes = {how, sweep_answer(document), head_of(document)};
  return svg_of(figure);
}

}  // namespace lockstep
