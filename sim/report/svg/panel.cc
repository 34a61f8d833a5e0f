#include "sim/report/svg/panel.h"

#include <fmt/format.h>

#include <sstream>

namespace lockstep::svg {
namespace {

constexpr double kLineHeight = 17;

std::vector<std::string> broken(const std::string& text, double width_px) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.empty() && text_width(lines.back() + " " + word, 12) <= width_px)
      lines.back() += " " + word;
    else
      lines.push_back(word);
  }
  return lines;
}

// Labels that would touch each other are left out, all but every n-th.
size_t label_stride(const Ticks& ticks, const Mapping& x) {
  double widest = 0;
  for (const std::string& label : ticks.labels) widest = std::max(widest, text_width(label, 12));
  const double apart = x(ticks.at[1]) - x(ticks.at[0]);
  return static_cast<size_t>(std::max(1.0, (widest + 10 + apart - 1) / apart));
}

}  // namespace

double draw_title(const std::string& title, double top, Canvas* canvas) {
  canvas->text(kMargin, top + 16, "title", shortened(title, 105));
  return top + 26;
}

double draw_notes(const std::vector<std::string>& notes, double top, Canvas* canvas) {
  double y = top;
  for (const std::string& note : notes)
    for (const std::string& line : broken(note, kWidth - 2 * kMargin)) {
      y += kLineHeight;
      canvas->text(kMargin, y, "muted", line);
    }
  return y + 6;
}

void draw_x_axis(const Box& box, const Axis& axis, const Ticks& ticks, const Mapping& x,
                 Canvas* canvas) {
  const size_t stride = label_stride(ticks, x);
  for (size_t i = 0; i < ticks.at.size(); ++i) {
    const double at = x(ticks.at[i]);
    canvas->line(at, box.top, at, box.bottom(), "grid");
    if (i % stride == 0) canvas->text(at, box.bottom() + 18, "m muted", ticks.labels[i]);
  }
  canvas->line(box.left, box.bottom(), box.right(), box.bottom(), "axis");
  canvas->text(box.left + box.width / 2, box.bottom() + 38, "m", axis.title);
}

void draw_y_axis(const Box& box, const Axis& axis, const Ticks& ticks, const Mapping& y,
                 Canvas* canvas) {
  double widest = 0;
  for (size_t i = 0; i < ticks.at.size(); ++i) {
    const double at = y(ticks.at[i]);
    canvas->line(box.left, at, box.right(), at, "grid");
    canvas->text(box.left - 8, at + 4, "e muted", ticks.labels[i]);
    widest = std::max(widest, text_width(ticks.labels[i], 12));
  }
  canvas->upward_text(std::max(18.0, box.left - widest - 22), box.top + box.height / 2, "",
                      axis.title);
}

double draw_legend(const std::vector<LegendEntry>& entries, double top, Canvas* canvas) {
  constexpr double kSample = 34, kGap = 22, kRow = 22;
  double x = kMargin, y = top + 10;
  for (const LegendEntry& entry : entries) {
    const std::string name = shortened(entry.name, 90);
    const double width = kSample + 8 + text_width(name, 13);
    if (x > kMargin && x + width > kWidth - kMargin) {
      x = kMargin;
      y += kRow;
    }
    canvas->open_group("", entry.name);
    if (entry.kind == LegendEntry::Kind::curve) canvas->line(x, y, x + kSample, y, entry.classes);
    if (entry.kind == LegendEntry::Kind::bar)
      canvas->rect(x + 4, y - 7, kSample - 8, 14, entry.classes);
    if (!entry.mark.empty()) canvas->path(mark_path(entry.shape, x + kSample / 2, y), entry.mark);
    canvas->text(x + kSample + 8, y + 4.5, "", name);
    canvas->close_group();
    x += width + kGap;
  }
  return y + kRow - 6;
}

}  // namespace lockstep::svg
