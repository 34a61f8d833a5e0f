#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::svg {

// Text between tags and in attributes: valid UTF-8 that XML 1.0 allows, in one line.
std::string escaped(std::string_view text);
// A coordinate in tenths of a pixel: "12.5", "3", "-0.1", never "-0". Finite.
std::string px(double value);
// A number to be read: up to four significant digits, "1,203", "0.0123", "2.5".
std::string number_text(double value);
// Its first code points and "…", where there are more than `most`.
std::string shortened(std::string_view text, size_t most);
// How wide it is at that font size, about: fonts differ, so leave some room.
double text_width(std::string_view text, double font_px = 13);

// SVG elements, appended one after the other. Classes are those of theme.h; a tooltip is shown by
// browsers over the element, and read by screen readers.
class Canvas {
 public:
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void rect(double x, double y, double width, double height, std::string_view classes,
            std::string_view tooltip = "");
  void path(std::string_view data, std::string_view classes, std::string_view tooltip = "");
  // The baseline begins at (x, y); with class "m" it has its middle there, with "e" its end.
  void text(double x, double y, std::string_view classes, std::string_view content);
  // Its middle at (x, y), read from the bottom upwards.
  void upward_text(double x, double y, std::string_view classes, std::string_view content);
  void open_group(std::string_view classes, std::string_view tooltip = "");
  void close_group();

  const std::string& elements() const { return out_; }

 private:
  void element(const std::string& start, std::string_view name, std::string_view tooltip);
  std::string out_;
};

// How charts look, light and dark: the only place of colours. Each is a CSS custom property of
// class "ls" (--paper, --ink, --c0 ...), which a page around the chart may set anew; what does not
// know custom properties gets the light ones.
//
// Classes of elements: title, muted, small (text); m, e (its middle or end stands at x); grid, axis
// (lines); l (a curve's line), k, h (full and hollow marks), b (an interval), v (a bar), halo (text
// over marks), each in the colour of a class c0 ... kAlarm.

// Colours told apart with each kind of colour blindness, in both schemes (after Okabe and Ito).
inline constexpr size_t kColors = 5;
inline constexpr size_t kNeutral = 5;  // what is not ours, or nobody's work
inline constexpr size_t kAlarm = 6;    // faults, what never ended

// "c2", of the colours above.
std::string color_class(size_t color);

// The look of the n-th of several series: colour, mark and dash all differ from its neighbours',
// and the three together repeat after 60.
size_t series_color(size_t series);
std::string dash_class(size_t series);  // "" or "d1" ... "d3"
// The data of a path: the series' mark with its middle at (x, y).
std::string mark_path(size_t series, double x, double y, double size = 4.5);

// What fills a bar, besides its colour.
enum class Texture { solid, hatched, dotted };
std::string texture_class(size_t color, Texture texture);  // "" | "hatched-2" | "dotted-2"

// <style> with all classes, and <defs> with the textures.
std::string style_elements();

}  // namespace lockstep::svg
