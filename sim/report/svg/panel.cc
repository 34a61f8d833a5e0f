#include "sim/report/svg/panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep::svg {
namespace {

constexpr double kLargest = 1e15;
// What differs by less has no room for ticks among the digits of a double.
constexpr double kLeastSpan = 1e-9;
// What is less is drawn as 0: powers of ten end at 1e308.
constexpr double kLeastSize = 1e-100;

// multiple * 10^exponent
struct Spacing {
  int64_t multiple;
  int exponent;

  double of(int64_t count) const {
    const double power = std::pow(10.0, std::abs(exponent));
    const auto units = static_cast<double>(count * multiple);
    return exponent < 0 ? units / power : units * power;
  }
  // How many times it the axis' ends are from 0.
  int64_t first(double low) const { return std::llround(std::floor(low / of(1))); }
  int64_t last(double high) const { return std::llround(std::ceil(high / of(1))); }
};

Spacing next(Spacing spacing) {
  if (spacing.multiple == 1) return {2, spacing.exponent};
  if (spacing.multiple == 2) return {5, spacing.exponent};
  return {1, spacing.exponent + 1};
}

// With the digits that tell a tick from its neighbour.
std::string label_of(double value, const Spacing& spacing) {
  if (value == 0) return "0";
  const int digits = std::max(0, -spacing.exponent);
  if (digits > 6 || std::fabs(value) >= 1e9) {
    const int magnitude = static_cast<int>(std::floor(std::log10(std::fabs(value))));
    return fmt::format("{:.{}g}", value, std::clamp(magnitude - spacing.exponent + 1, 1, 17));
  }
  if (digits == 0 && std::fabs(value) >= 1000) return grouped(std::llround(value));
  return fmt::format("{:.{}f}", value, digits);
}

void widen(double* low, double* high) {
  const double size = std::max(std::fabs(*low), std::fabs(*high));
  const bool nothing = size < kLeastSize;
  if (!nothing && *high - *low > size * kLeastSpan) return;
  *low -= nothing ? 0 : size * 0.05;
  *high += nothing ? 1 : size * 0.05;
}

}  // namespace

Ticks linear_ticks(double low, double high, int most) {
  LOCKSTEP_CHECK(std::fabs(low) <= kLargest && std::fabs(high) <= kLargest && low <= high,
                 fmt::format("no axis goes from {} to {}", low, high));
  LOCKSTEP_CHECK(most >= 4, "too few ticks are allowed");
  widen(&low, &high);
  Spacing spacing{1, static_cast<int>(std::floor(std::log10((high - low) / most))) - 1};
  while (spacing.last(high) - spacing.first(low) + 1 > most) spacing = next(spacing);
  Ticks ticks;
  for (int64_t i = spacing.first(low); i <= spacing.last(high); ++i) {
    ticks.at.push_back(spacing.of(i));
    ticks.labels.push_back(label_of(ticks.at.back(), spacing));
  }
  return ticks;
}

Ticks log2_ticks(double low, double high, int most) {
  LOCKSTEP_CHECK(low > 0 && low <= high && std::isfinite(high),
                 fmt::format("no logarithmic axis goes from {} to {}", low, high));
  LOCKSTEP_CHECK(most >= 4, "too few ticks are allowed");
  int first = static_cast<int>(std::floor(std::log2(low)));
  int last = static_cast<int>(std::ceil(std::log2(high)));
  if (first == last) {
    --first;
    ++last;
  }
  const int stride = std::max(1, (last - first + most - 2) / (most - 1));
  last += (stride - (last - first) % stride) % stride;
  Ticks ticks;
  for (int power = first; power <= last; power += stride) {
    ticks.at.push_back(std::ldexp(1.0, power));
    const double value = ticks.at.back();
    const bool whole = value >= 1 && value < 1e9;
    ticks.labels.push_back(whole ? grouped(std::llround(value)) : fmt::format("{:.3g}", value));
  }
  return ticks;
}

Mapping::Mapping(Scale scale, double low, double high, double from_px, double to_px)
    : scale_(scale), low_(low), high_(high), from_px_(from_px), to_px_(to_px) {
  if (scale == Scale::log2) {
    LOCKSTEP_CHECK(low > 0, "a logarithmic axis begins above 0");
    low_ = std::log2(low);
    high_ = std::log2(high);
  }
  LOCKSTEP_CHECK(low_ < high_, "an axis has a length");
}

double Mapping::operator()(double value) const {
  LOCKSTEP_CHECK(scale_ == Scale::linear || value > 0, "a logarithmic axis shows what is above 0");
  const double place = scale_ == Scale::log2 ? std::log2(value) : value;
  return from_px_ + (place - low_) / (high_ - low_) * (to_px_ - from_px_);
}

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
