#pragma once

#include <cstddef>
#include <string>

namespace lockstep::svg {

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
