#include "sim/report/svg/canvas.h"

#include <fmt/format.h>

#include <cmath>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep::svg {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

size_t characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += begins_character(byte) ? 1 : 0;
  return count;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  const std::string valid = printable(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    switch (valid[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += valid[i];
    }
    // U+FFFE and U+FFFF are UTF-8, but no characters of XML.
    if (out.ends_with("\xef\xbf\xbe") || out.ends_with("\xef\xbf\xbf")) out.back() = '\xbd';
  }
  return out;
}

std::string px(double value) {
  LOCKSTEP_CHECK(std::isfinite(value), "a coordinate is no number");
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string number_text(double value) {
  if (std::fabs(value) >= 1000 && std::fabs(value) < 1e15) return grouped(std::llround(value));
  return fmt::format("{:.4g}", value == 0 ? 0.0 : value);
}

std::string shortened(std::string_view text, size_t most) {
  if (characters(text) <= most) return std::string(text);
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end)
    if (begins_character(text[end]) && ++seen == most) break;
  return std::string(text.substr(0, end)) + "\xe2\x80\xa6";
}

double text_width(std::string_view text, double font_px) {
  constexpr double kOfFont = 0.57;
  return static_cast<double>(characters(text)) * kOfFont * font_px;
}

void Canvas::element(const std::string& start, std::string_view name, std::string_view tooltip) {
  out_ += start;
  if (tooltip.empty())
    out_ += "/>\n";
  else
    out_ += fmt::format("><title>{}</title></{}>\n", escaped(tooltip), name);
}

void Canvas::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  element(fmt::format(R"(<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}")", classes, px(x1),
                      px(y1), px(x2), px(y2)),
          "line", "");
}

void Canvas::rect(double x, double y, double width, double height, std::string_view classes,
                  std::string_view tooltip) {
  element(fmt::format(R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}")", classes, px(x),
                      px(y), px(width), px(height)),
          "rect", tooltip);
}

void Canvas::path(std::string_view data, std::string_view classes, std::string_view tooltip) {
  element(fmt::format(R"(<path class="{}" d="{}")", classes, data), "path", tooltip);
}

void Canvas::text(double x, double y, std::string_view classes, std::string_view content) {
  out_ += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", classes, px(x), px(y),
                      escaped(content));
}

void Canvas::upward_text(double x, double y, std::string_view classes, std::string_view content) {
  out_ += fmt::format("<text class=\"m {}\" transform=\"translate({} {}) rotate(-90)\">{}</text>\n",
                      classes, px(x), px(y), escaped(content));
}

void Canvas::open_group(std::string_view classes, std::string_view tooltip) {
  out_ += fmt::format("<g class=\"{}\">\n", classes);
  if (!tooltip.empty()) out_ += fmt::format("<title>{}</title>\n", escaped(tooltip));
}

void Canvas::close_group() { out_ += "</g>\n"; }

}  // namespace lockstep::svg
