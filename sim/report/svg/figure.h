#pragma once

#include <string>
#include <variant>
#include <vector>

#include "sim/report/svg/curves.h"
#include "sim/report/svg/gantt.h"
#include "sim/report/svg/histogram.h"

namespace lockstep::svg {

// One document: charts below each other. Plain values in, the same bytes out for the same values.
// It uses nothing from elsewhere, reads well at its own size (960 pixels wide), in light and dark
// (it follows the browser's scheme), and can stand in an <img> or within a page. Nothing is told by
// colour alone, and every mark has a tooltip. Names may hold any bytes.
struct Figure {
  std::string title;
  std::string description;  // what is to be seen, for those who cannot see it
  std::vector<std::variant<Curves, Histogram, Gantt>> charts;
  std::vector<std::string> notes;  // at the end: what made it, where and when
};

// An SVG 1.1 document, UTF-8, ending in a newline.
std::string svg_of(const Figure& figure);

}  // namespace lockstep::svg
