#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

// Is there a terminal at `fd` that can write over a line? None where TERM is dumb or absent.
bool can_move(int fd);
// Of the terminal at `fd`: COLUMNS where that is set, else what it says, else 80.
size_t columns_of(int fd);

// One line on standard error that is written over, and at last taken away. It consists of carriage
// returns and blanks, not of escapes, and is cut to the terminal's width (COLUMNS, where that is
// set): what has wrapped cannot be written over.
class MovingLine {
 public:
  explicit MovingLine(bool on) : on_(on) {}  // off: it shows nothing
  ~MovingLine() { show(""); }
  MovingLine(const MovingLine&) = delete;
  MovingLine& operator=(const MovingLine&) = delete;

  void show(const std::string& text);

 private:
  const bool on_;
  size_t width_ = 0;  // of what stands there
};

}  // namespace lockstep
