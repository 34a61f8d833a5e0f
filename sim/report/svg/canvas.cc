#include "sim/report/svg/canvas.h"

#include <fmt/format.h>

#include <array>
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

std::string escaped(std::string_view text) { return xml_attribute(printable(text)); }

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

namespace {

struct Color {
  const char* name;
  const char* light;
  const char* dark;
};

constexpr std::array kTheme = {
    Color{"paper", "#ffffff", "#14171c"},  Color{"ink", "#1b1d21", "#e8eaed"},
    Color{"muted", "#565b63", "#a4abb5"},  Color{"grid", "#e2e5e9", "#2b3038"},
    Color{"on-bar", "#ffffff", "#101216"},  //
    Color{"c0", "#0068a8", "#5db7f2"},      // blue
    Color{"c1", "#b84700", "#ff9a52"},      // vermillion
    Color{"c2", "#00735a", "#35cfa0"},      // green
    Color{"c3", "#9c3f7a", "#ef9fce"},      // purple
    Color{"c4", "#806000", "#ecd04a"},      // dark yellow
    Color{"c5", "#565b63", "#a4abb5"},      // neutral
    Color{"c6", "#c4001f", "#ff6b75"},      // alarm
};

constexpr const char* kFont = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif";

// A declaration for those that do not know custom properties, then one for those that do.
std::string paint(const char* property, const char* name) {
  for (const Color& color : kTheme)
    if (std::string(color.name) == name)
      return fmt::format("{}:{};{}:var(--{})", property, color.light, property, name);
  return "";
}

std::string variables(const char* Color::*scheme) {
  std::string text;
  for (const Color& color : kTheme) text += fmt::format("--{}:{};", color.name, color.*scheme);
  return ".ls{" + text + "}\n";
}

std::string rules() {
  std::string text;
  const auto rule = [&](const char* of, const std::string& declarations) {
    text += fmt::format(".ls {}{{{}}}\n", of, declarations);
  };
  rule(".paper", paint("fill", "paper"));
  rule("text", fmt::format("font:13px {};", kFont) + paint("fill", "ink"));
  rule("text.head", "font-size:18px;font-weight:600");
  rule("text.title", "font-size:15px;font-weight:600");
  rule("text.muted", "font-size:12px;" + paint("fill", "muted"));
  rule("text.small", "font-size:11px;" + paint("fill", "muted"));
  rule("text.on-bar", "font-size:11px;" + paint("fill", "on-bar") + ";pointer-events:none");
  rule("text.halo", "font-size:12px;font-weight:600;stroke-width:4;paint-order:stroke;" +
                        paint("stroke", "paper"));
  rule(".m", "text-anchor:middle");
  rule(".e", "text-anchor:end");
  rule(".grid", "fill:none;stroke-width:1;" + paint("stroke", "grid"));
  rule(".axis", "fill:none;stroke-width:1;" + paint("stroke", "muted"));
  for (size_t i = 0; i <= kAlarm; ++i)
    rule(("." + color_class(i)).c_str(), paint("color", color_class(i).c_str()));
  rule(".l", "fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round");
  rule(".d1", "stroke-dasharray:8 4");
  rule(".d2", "stroke-dasharray:2 4");
  rule(".d3", "stroke-dasharray:9 3 2 3");
  rule(".k", "fill:currentColor;stroke-width:1;" + paint("stroke", "paper"));
  rule(".h", "stroke:currentColor;stroke-width:1.5;" + paint("fill", "paper"));
  rule(".b", "fill:currentColor;fill-opacity:.16");
  rule(".v", "fill:currentColor;stroke-width:.5;" + paint("stroke", "paper"));
  rule(".ring", "fill:none;stroke-width:2;" + paint("stroke", "ink"));
  return text;
}

std::string pattern(size_t color, Texture texture) {
  const std::string name = texture_class(color, texture);
  const std::string of = color_class(color);
  const char* mark = texture == Texture::hatched ? R"(<rect class="v" width="2" height="6"/>)"
                                                 : R"(<circle class="v" cx="2" cy="2" r="1.4"/>)";
  return fmt::format(
      R"x(<pattern id="ls-{}" class="{}" width="6" height="6" patternUnits="userSpaceOnUse" )x"
      R"x(patternTransform="rotate(45)"><rect class="b" width="6" height="6"/>{}</pattern>)x"
      "\n",
      name, of, mark);
}

}  // namespace

std::string color_class(size_t color) { return fmt::format("c{}", color); }

size_t series_color(size_t series) { return series % kColors; }

std::string dash_class(size_t series) {
  const size_t dash = series % 4;
  return dash == 0 ? "" : fmt::format("d{}", dash);
}

std::string mark_path(size_t series, double x, double y, double size) {
  const auto at = [&](double dx, double dy) { return px(x + dx * size) + " " + px(y + dy * size); };
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string data;
    for (const auto& [dx, dy] : corners) data += (data.empty() ? "M" : "L") + at(dx, dy);
    return data + "Z";
  };
  switch (series % 6) {
    case 0:  // a circle
      return fmt::format("M{0}a{1} {1} 0 1 0 {2} 0a{1} {1} 0 1 0 -{2} 0Z", at(-1, 0), px(size),
                         px(2 * size));
    case 1:
      return polygon({{-.9, -.9}, {.9, -.9}, {.9, .9}, {-.9, .9}});
    case 2:
      return polygon({{0, -1.2}, {1.1, .8}, {-1.1, .8}});
    case 3:
      return polygon({{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}});
    case 4:
      return polygon({{0, 1.2}, {1.1, -.8}, {-1.1, -.8}});
    default:  // a plus
      return polygon({{-.4, -1.2},
                      {.4, -1.2},
                      {.4, -.4},
                      {1.2, -.4},
                      {1.2, .4},
                      {.4, .4},
                      {.4, 1.2},
                      {-.4, 1.2},
                      {-.4, .4},
                      {-1.2, .4},
                      {-1.2, -.4},
                      {-.4, -.4}});
  }
}

std::string texture_class(size_t color, Texture texture) {
  if (texture == Texture::solid) return "";
  return fmt::format("{}-{}", texture == Texture::hatched ? "hatched" : "dotted", color);
}

std::string style_elements() {
  std::string text = "<style>\n" + variables(&Color::light) +
                     "@media (prefers-color-scheme:dark){" + variables(&Color::dark) + "}\n" +
                     rules();
  std::string patterns;
  for (size_t color = 0; color <= kNeutral; ++color)
    for (const Texture texture : {Texture::hatched, Texture::dotted}) {
      const std::string name = texture_class(color, texture);
      text += fmt::format(".ls .v.{0}{{fill:url(#ls-{0})}}\n", name);
      patterns += pattern(color, texture);
    }
  return text + "</style>\n<defs>\n" + patterns + "</defs>\n";
}

}  // namespace lockstep::svg
