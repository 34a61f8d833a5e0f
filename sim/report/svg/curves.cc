#include "sim/report/svg/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep::svg {
namespace {

constexpr double kPlotLeft = 88, kPlotHeight = 300;
constexpr size_t kMostMarks = 1200;  // of all series together: each has a tooltip

class Drawing {
 public:
  Drawing(const Curves& curves, Canvas* canvas) : curves_(curves), canvas_(*canvas) {
    size_t drawn = 0, all = 0;
    for (size_t i = 0; i < curves.series.size(); ++i) {
      std::vector<Point> points = curves.series[i].points;
      std::stable_sort(points.begin(), points.end(),
                       [](const Point& a, const Point& b) { return a.x < b.x; });
      all += points.size();
      series_.push_back(thinned(points, kMostPoints / curves.series.size() + 2, highlighted(i)));
      drawn += series_.back().size();
    }
    if (drawn < all)
      thinned_ =
          fmt::format("{} of {} points are drawn: of each stretch the lowest and the highest.",
                      grouped(static_cast<int64_t>(drawn)), grouped(static_cast<int64_t>(all)));
  }

  double draw(double top) {
    double y = draw_title(curves_.title, top, &canvas_);
    y = draw_legend(legend(), y, &canvas_);
    box_ = {kPlotLeft, y + 8, kWidth - kPlotLeft - kMargin - 8, kPlotHeight};
    if (find_ranges())
      draw_plot();
    else
      canvas_.text(box_.left + box_.width / 2, box_.top + box_.height / 2, "m muted",
                   "there is nothing to draw");
    std::vector<std::string> notes = curves_.notes;
    if (!thinned_.empty()) notes.push_back(thinned_);
    if (!y_ticks_.at.empty() && y_ticks_.low() > 0)
      notes.emplace_back("The vertical axis does not begin at 0.");
    return draw_notes(notes, box_.bottom() + kXAxisHeight, &canvas_);
  }

 private:
  std::vector<double> highlighted(size_t series) const {
    std::vector<double> found;
    for (const Highlight& one : curves_.highlights)
      if (one.series == series) found.push_back(one.x);
    return found;
  }

  std::string color(size_t i) const {
    return color_class(curves_.series[i].others ? kNeutral : series_color(i));
  }
  std::string mark_classes(size_t i) const {
    return (curves_.series[i].others ? "h " : "k ") + color(i);
  }
  std::string line_classes(size_t i) const {
    const std::string dash = curves_.series[i].others ? "d2" : dash_class(i);
    return "l " + color(i) + (dash.empty() ? "" : " " + dash);
  }

  std::vector<LegendEntry> legend() const {
    std::vector<LegendEntry> entries;
    for (size_t i = 0; i < curves_.series.size(); ++i)
      entries.push_back(
          {curves_.series[i].name, LegendEntry::Kind::curve, line_classes(i), mark_classes(i), i});
    if (!curves_.highlights.empty())
      entries.push_back({curves_.highlight_meaning, LegendEntry::Kind::mark, "", "ring", 0});
    return entries;
  }

  // Of both axes; nothing where there is no point.
  bool find_ranges() {
    std::vector<double> xs, ys;
    for (size_t i = 0; i < series_.size(); ++i)
      for (const Point& point : series_[i]) {
        if (!curves_.series[i].level) xs.push_back(point.x);
        ys.push_back(point.y);
        if (!point.interval) continue;
        ys.push_back(point.interval->first);
        ys.push_back(point.interval->second);
      }
    if (ys.empty()) return false;
    if (xs.empty()) xs.push_back(1);
    if (curves_.y_from_zero) ys.push_back(0);
    x_ticks_ = ticks_of(curves_.x.scale, xs, 13);
    y_ticks_ = ticks_of(curves_.y.scale, ys, 8);
    return true;
  }
  static Ticks ticks_of(Scale scale, const std::vector<double>& values, int most) {
    for (const double value : values) LOCKSTEP_CHECK(std::isfinite(value), "a value is no number");
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return scale == Scale::log2 ? log2_ticks(*low, *high, most) : linear_ticks(*low, *high, most);
  }

  void draw_plot() {
    const Mapping x(curves_.x.scale, x_ticks_.low(), x_ticks_.high(), box_.left, box_.right());
    const Mapping y(curves_.y.scale, y_ticks_.low(), y_ticks_.high(), box_.bottom(), box_.top);
    draw_y_axis(box_, curves_.y, y_ticks_, y, &canvas_);
    draw_x_axis(box_, curves_.x, x_ticks_, x, &canvas_);
    for (size_t i = 0; i < series_.size(); ++i) draw_intervals(i, x, y);
    for (size_t i = 0; i < series_.size(); ++i) draw_line(i, x, y);
    for (size_t i = 0; i < series_.size(); ++i) draw_marks(i, x, y);
    for (const Highlight& one : curves_.highlights) draw_highlight(one, x, y);
  }

  double x_of(size_t i, const Point& point, const Mapping& x) const {
    return curves_.series[i].level ? box_.right() : x(point.x);
  }

  // A band along the points that have one; of a single point a bar with ends.
  void draw_intervals(size_t i, const Mapping& x, const Mapping& y) {
    std::string upper, lower;
    size_t with = 0;
    for (const Point& point : series_[i]) {
      if (!point.interval) continue;
      const auto [low, high] = *point.interval;
      const std::string at = px(x_of(i, point, x));
      upper += (with++ == 0 ? "M" : "L") + at + " " + px(y(high));
      lower.insert(0, "L" + at + " " + px(y(low)));
      if (curves_.series[i].level)
        canvas_.rect(box_.left, y(high), box_.width, y(low) - y(high), "b " + color(i));
    }
    if (curves_.series[i].level) return;
    if (with > 1) canvas_.path(upper + lower + "Z", "b " + color(i));
    if (series_[i].size() == 1 && with == 1) draw_whisker(i, series_[i].front(), x, y);
  }
  void draw_whisker(size_t i, const Point& point, const Mapping& x, const Mapping& y) {
    const double at = x(point.x), low = y(point.interval->first), high = y(point.interval->second);
    const std::string classes = "l " + color(i);
    canvas_.line(at, low, at, high, classes);
    canvas_.line(at - 6, low, at + 6, low, classes);
    canvas_.line(at - 6, high, at + 6, high, classes);
  }

  void draw_line(size_t i, const Mapping& x, const Mapping& y) {
    std::string data;
    for (const Point& point : series_[i])
      data += (data.empty() ? "M" : "L") + px(x_of(i, point, x)) + " " + px(y(point.y));
    if (curves_.series[i].level)
      for (const Point& point : series_[i])
        canvas_.line(box_.left, y(point.y), box_.right(), y(point.y), line_classes(i));
    else if (series_[i].size() > 1)
      canvas_.path(data, line_classes(i));
  }

  void draw_marks(size_t i, const Mapping& x, const Mapping& y) {
    const size_t most = std::clamp<size_t>(kMostMarks / series_.size(), 8, 80);
    const size_t stride = (series_[i].size() + most - 1) / most;
    for (size_t k = 0; k < series_[i].size(); k += stride) {
      const Point& point = series_[i][k];
      canvas_.path(mark_path(i, x_of(i, point, x), y(point.y)), mark_classes(i), tooltip(i, point));
    }
  }

  std::string tooltip(size_t i, const Point& point) const {
    const Series& series = curves_.series[i];
    std::string text = series.name;
    if (!series.level) text += fmt::format("; {}: {}", curves_.x.title, number_text(point.x));
    text += fmt::format("; {}: {}", curves_.y.title, number_text(point.y));
    if (point.interval)
      text += fmt::format(", 95 % interval {} .. {}", number_text(point.interval->first),
                          number_text(point.interval->second));
    return point.note.empty() ? text : text + "; " + point.note;
  }

  void draw_highlight(const Highlight& one, const Mapping& x, const Mapping& y) {
    LOCKSTEP_CHECK(one.series < series_.size(), "a highlight of no series");
    const auto& points = series_[one.series];
    const auto found = std::find_if(points.begin(), points.end(),
                                    [&](const Point& point) { return point.x == one.x; });
    LOCKSTEP_CHECK(found != points.end(), "a highlight of no point");
    const double at_x = x(found->x), at_y = y(found->y);
    canvas_.path(mark_path(0, at_x, at_y, 10), "ring", tooltip(one.series, *found));
    const Box label = free_place(at_x, at_y, text_width(one.label, 12), x, y);
    labels_.push_back(label);
    canvas_.text(label.left + label.width / 2, label.bottom() - 3, "halo m", one.label);
  }

  // Above, below, right or left of it: where the fewest marks and labels are in the way.
  Box free_place(double at_x, double at_y, double width, const Mapping& x, const Mapping& y) const {
    constexpr double kHeight = 15, kAway = 12;
    Box best;
    double fewest = INFINITY;
    for (const auto& [left, top] : {std::pair(at_x - width / 2, at_y - kAway - kHeight),
                                    {at_x - width / 2, at_y + kAway},
                                    {at_x + kAway, at_y - kHeight / 2},
                                    {at_x - kAway - width, at_y - kHeight / 2}}) {
      const Box place{left, top, width, kHeight};
      const double in_the_way = hits(place, x, y);
      if (in_the_way < fewest) {
        fewest = in_the_way;
        best = place;
      }
    }
    return best;
  }
  double hits(const Box& place, const Mapping& x, const Mapping& y) const {
    constexpr double kMark = 6, kOutside = 1000, kLabel = 10;
    double hits = 0;
    if (place.left < box_.left || place.right() > kWidth || place.top < box_.top ||
        place.bottom() > box_.bottom())
      hits += kOutside;
    for (size_t i = 0; i < series_.size(); ++i)
      for (const Point& point : series_[i]) {
        const double away_x = std::fabs(x_of(i, point, x) - place.left - place.width / 2);
        const double away_y = std::fabs(y(point.y) - place.top - place.height / 2);
        if (away_x < place.width / 2 + kMark && away_y < place.height / 2 + kMark) ++hits;
      }
    for (const Box& label : labels_)
      if (place.left < label.right() && label.left < place.right() && place.top < label.bottom() &&
          label.top < place.bottom())
        hits += kLabel;
    return hits;
  }

  const Curves& curves_;
  Canvas& canvas_;
  std::vector<std::vector<Point>> series_;  // ascending x, thinned out
  std::string thinned_;
  Box box_;
  Ticks x_ticks_, y_ticks_;
  std::vector<Box> labels_;  // of highlights, so far
};

}  // namespace

double draw(const Curves& curves, double top, Canvas* canvas) {
  return Drawing(curves, canvas).draw(top);
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t most,
                           const std::vector<double>& keep) {
  if (points.size() <= most) return points;
  std::vector<bool> stays(points.size(), false);
  stays.front() = stays.back() = true;
  const size_t stretches = std::max<size_t>(1, most / 2);
  const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<int64_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<int64_t>(points.size() * (i + 1) / stretches);
    const auto [low, high] = std::minmax_element(begin, end, lower);
    stays[static_cast<size_t>(low - points.begin())] = true;
    stays[static_cast<size_t>(high - points.begin())] = true;
  }
  std::vector<Point> left;
  for (size_t i = 0; i < points.size(); ++i)
    if (stays[i] || std::find(keep.begin(), keep.end(), points[i].x) != keep.end())
      left.push_back(points[i]);
  return left;
}

namespace {

Curves over_world_size(const std::string& title, const std::string& y_title) {
  Curves curves;
  curves.title = title;
  curves.x = {"world size (ranks)", Scale::log2};
  curves.y.title = y_title;
  curves.y_from_zero = true;
  return curves;
}

Point scaling_point(const ScalingPoint& from) {
  Point point{static_cast<double>(from.world_size), from.step_ms, from.interval_ms, {}};
  return point;
}

}  // namespace

Curves step_times_of(const std::vector<ScalingSeries>& series) {
  Curves curves = over_world_size("Step time over world size", "step time (ms)");
  for (const ScalingSeries& one : series) {
    Series& made = curves.series.emplace_back();
    made.name = one.name;
    for (const ScalingPoint& point : one.points) made.points.push_back(scaling_point(point));
  }
  return curves;
}

Curves efficiencies_of(const std::vector<ScalingSeries>& series) {
  Curves curves = over_world_size("Scaling efficiency", "efficiency (%)");
  for (const ScalingSeries& one : series) {
    Series& made = curves.series.emplace_back();
    made.name = one.name;
    if (one.points.empty()) continue;
    const ScalingPoint& least = *std::min_element(
        one.points.begin(), one.points.end(),
        [](const ScalingPoint& a, const ScalingPoint& b) { return a.world_size < b.world_size; });
    for (const ScalingPoint& at : one.points) {
      LOCKSTEP_CHECK(at.step_ms > 0, "a step takes time");
      const auto percent = [&](double step_ms) { return 100 * least.step_ms / step_ms; };
      Point point = scaling_point(at);
      point.y = percent(at.step_ms);
      point.note = fmt::format("step {} ms", number_text(at.step_ms));
      if (point.interval && point.interval->first > 0)
        point.interval = {percent(point.interval->second), percent(point.interval->first)};
      else
        point.interval.reset();
      made.points.push_back(point);
    }
  }
  curves.notes.emplace_back(
      "Efficiency: the step time at the least world size, divided by that at this one.");
  return curves;
}

}  // namespace lockstep::svg
