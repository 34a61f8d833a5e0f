#pragma once

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

}  // namespace lockstep::svg
