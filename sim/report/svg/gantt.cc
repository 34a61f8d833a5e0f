#include "sim/report/svg/gantt.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "scenarios/base/error.h"

namespace lockstep::svg {
namespace {

constexpr double kGanttLeft = 172;
constexpr double kLine = 15, kThinLine = 5;  // height of a line of bars
constexpr size_t kFullLines = 6;             // more of them in a track are thin, without labels
constexpr double kTrackGap = 3, kRowGap = 12;

size_t line_count(const std::vector<size_t>& lines) {
  return lines.empty() ? 1 : *std::max_element(lines.begin(), lines.end()) + 1;
}

class GanttDrawing {
 public:
  GanttDrawing(const Gantt& gantt, Canvas* canvas) : gantt_(gantt), canvas_(*canvas) {
    std::vector<double> times;
    for (const Row& row : gantt.rows) {
      for (const Row::Mark& mark : row.marks) times.push_back(mark.at);
      any_mark_ = any_mark_ || !row.marks.empty();
      for (const Track& track : row.tracks)
        for (const Bar& bar : track.bars) see(bar, &times);
    }
    if (times.empty()) return;
    for (const double time : times) LOCKSTEP_CHECK(std::isfinite(time), "a time is no number");
    const auto [low, high] = std::minmax_element(times.begin(), times.end());
    ticks_ = linear_ticks(*low, *high, 13);
  }

  double draw(double top) {
    double y = draw_title(gantt_.title, top, &canvas_);
    y = draw_legend(legend(), y, &canvas_) + 4;
    if (ticks_.at.empty()) {
      canvas_.text(kWidth / 2, y + 20, "m muted", "there is nothing to draw");
      return draw_notes(gantt_.notes, y + 36, &canvas_);
    }
    const Box box{kGanttLeft, y, kWidth - kGanttLeft - kMargin - 8, rows_height()};
    const Mapping x(Scale::linear, ticks_.low(), ticks_.high(), box.left, box.right());
    draw_x_axis(box, gantt_.x, ticks_, x, &canvas_);
    y += kRowGap / 2;
    for (const Row& row : gantt_.rows) y = draw_row(row, y, x) + kRowGap;
    return draw_notes(gantt_.notes, box.bottom() + kXAxisHeight, &canvas_);
  }

 private:
  void see(const Bar& bar, std::vector<double>* times) {
    LOCKSTEP_CHECK(!bar.parts.empty(), "a bar of no part");
    for (const Bar::Part& part : bar.parts) {
      LOCKSTEP_CHECK(part.kind < gantt_.kinds.size(), "a bar of no kind");
      times->push_back(part.begin);
      times->push_back(part.end);
      seen_.insert(part.kind);
    }
    any_open_ = any_open_ || bar.open;
  }

  std::string classes_of(size_t kind) const {
    const BarKind& one = gantt_.kinds[kind];
    const std::string texture = texture_class(one.color, one.texture);
    return "v " + color_class(one.color) + (texture.empty() ? "" : " " + texture);
  }

  // Kinds that are drawn, in the order of the kinds.
  std::vector<LegendEntry> legend() const {
    std::vector<LegendEntry> entries;
    for (const size_t kind : seen_)
      entries.push_back({gantt_.kinds[kind].name, LegendEntry::Kind::bar, classes_of(kind), "", 0});
    const std::string alarm = color_class(kAlarm);
    if (any_open_)
      entries.push_back({"never ended", LegendEntry::Kind::mark, "", "k " + alarm, kOpenShape});
    if (any_mark_)
      entries.push_back(
          {gantt_.mark_meaning, LegendEntry::Kind::mark, "", "k " + alarm, kMarkShape});
    return entries;
  }

  static double line_height(size_t lines) { return lines > kFullLines ? kThinLine : kLine; }
  static double height_of(const Row& row) {
    double height = -kTrackGap;
    for (const Track& track : row.tracks) {
      const size_t lines = line_count(lines_of(track.bars));
      height += static_cast<double>(lines) * line_height(lines) + kTrackGap;
    }
    return std::max(height, kLine);
  }
  double rows_height() const {
    double height = 0;
    for (const Row& row : gantt_.rows) height += height_of(row) + kRowGap;
    return height;
  }

  double draw_row(const Row& row, double top, const Mapping& x) {
    const double bottom = top + height_of(row);
    canvas_.text(kMargin, top + 12, "", shortened(row.name, 12));
    double y = top;
    for (const Track& track : row.tracks) {
      const std::vector<size_t> lines = lines_of(track.bars);
      const double height = line_height(line_count(lines));
      canvas_.text(kGanttLeft - 8, y + 12, "e small", shortened(track.name, 14));
      for (size_t i = 0; i < lines.size(); ++i)
        draw_bar(track.bars[i], y + static_cast<double>(lines[i]) * height, height, x);
      y += static_cast<double>(line_count(lines)) * height + kTrackGap;
    }
    canvas_.line(kMargin, bottom + kRowGap / 2, x(ticks_.high()), bottom + kRowGap / 2, "grid");
    for (const Row::Mark& mark : row.marks) {
      canvas_.line(x(mark.at), top - 2, x(mark.at), bottom, "l " + color_class(kAlarm));
      canvas_.path(mark_path(kMarkShape, x(mark.at), top - 2, 6), "k " + color_class(kAlarm),
                   mark.note);
    }
    return bottom;
  }

  void draw_bar(const Bar& bar, double top, double height, const Mapping& x) {
    constexpr double kLeastWidth = 0.8;
    canvas_.open_group("", bar.note);
    for (const Bar::Part& part : bar.parts) {
      const double left = x(part.begin), width = x(part.end) - left;
      canvas_.rect(left, top, std::max(width, kLeastWidth), height - 1, classes_of(part.kind));
    }
    if (height == kLine) draw_label(bar, top, x);
    if (bar.open)
      canvas_.path(mark_path(kOpenShape, x(bar.parts.back().end), top + height / 2 - 0.5),
                   "k " + color_class(kAlarm));
    canvas_.close_group();
  }

  // In the widest part of one colour; textures are no ground for letters.
  void draw_label(const Bar& bar, double top, const Mapping& x) {
    const Bar::Part* widest = nullptr;
    for (const Bar::Part& part : bar.parts)
      if (gantt_.kinds[part.kind].texture == Texture::solid &&
          (widest == nullptr || part.end - part.begin > widest->end - widest->begin))
        widest = &part;
    if (widest == nullptr) return;
    const double left = x(widest->begin), right = x(widest->end);
    for (const std::string& label : {bar.label, bar.label.substr(bar.label.rfind(' ') + 1)})
      if (!label.empty() && text_width(label, 11) <= right - left - 4)
        return canvas_.text((left + right) / 2, top + 11, "m on-bar", label);
  }

  static constexpr size_t kOpenShape = 5, kMarkShape = 4;  // of mark_path()

  const Gantt& gantt_;
  Canvas& canvas_;
  Ticks ticks_;
  std::set<size_t> seen_;
  bool any_mark_ = false, any_open_ = false;
};

}  // namespace

std::vector<size_t> lines_of(const std::vector<Bar>& bars) {
  std::vector<size_t> order(bars.size()), lines(bars.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return bars[a].parts.front().begin < bars[b].parts.front().begin;
  });
  std::vector<double> free;  // when each line is free again
  for (const size_t i : order) {
    const double begin = bars[i].parts.front().begin;
    size_t line = 0;
    while (line < free.size() && free[line] > begin) ++line;
    if (line == free.size()) free.push_back(0);
    free[line] = bars[i].parts.back().end;
    lines[i] = line;
  }
  return lines;
}

double draw(const Gantt& gantt, double top, Canvas* canvas) {
  return GanttDrawing(gantt, canvas).draw(top);
}

}  // namespace lockstep::svg
