#pragma once

#include <string>
#include <vector>

#include "sim/report/svg/panel.h"

namespace lockstep::svg {

// Who did what when: rows with tracks of bars over a common axis of time, and marks.

// What a part of a bar means, and how it looks.
struct BarKind {
  std::string name;
  size_t color = 0;  // theme.h
  Texture texture = Texture::solid;
};

// One thing that was done, in parts that follow each other, each of one kind.
struct Bar {
  struct Part {
    double begin = 0, end = 0;  // of the axis
    size_t kind = 0;            // place in Gantt::kinds
  };
  std::vector<Part> parts;  // at least one
  std::string label;        // stands in it where there is room, or else its last word does
  std::string note;         // tooltip
  bool open = false;        // it never ended: the last part goes as far as is known
};

// Bars that overlap in time are drawn below each other.
struct Track {
  std::string name;
  std::vector<Bar> bars;
};

struct Row {
  struct Mark {
    double at = 0;
    std::string note;  // tooltip
  };
  std::string name;
  std::vector<Track> tracks;
  std::vector<Mark> marks;
};

struct Gantt {
  std::string title;
  Axis x;                    // "time since the step began (ms)", linear
  std::string mark_meaning;  // in the legend, where a row has marks
  std::vector<BarKind> kinds;
  std::vector<Row> rows;
  std::vector<std::string> notes;
};

// Draws every row and bar: it is for the caller to choose some, and to say so in the notes (a bar
// is about 250 bytes). Times are finite; of no bar at all it says so.
double draw(const Gantt& gantt, double top, Canvas* canvas);

// Which of the bars that overlap is drawn in which line, in the order of the bars: the first line
// that is free again when it begins.
std::vector<size_t> lines_of(const std::vector<Bar>& bars);

}  // namespace lockstep::svg
