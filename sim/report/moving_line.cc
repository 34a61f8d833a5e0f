#include "sim/report/moving_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

// Its first characters, and how many they are. `text` is UTF-8.
std::pair<std::string, size_t> first_characters(const std::string& text, size_t most) {
  size_t end = 0, count = 0;
  for (; end < text.size() && count < most; ++count)
    end += std::max<size_t>(utf8_length(std::string_view(text).substr(end)), 1);
  return {text.substr(0, end), count};
}

}  // namespace

size_t columns_of(int fd) {
  constexpr size_t kUsual = 80;
  size_t columns = 0;
  const char* told = std::getenv("COLUMNS");
  if (told != nullptr) std::from_chars(told, told + std::strlen(told), columns);
  if (columns > 0) return columns;
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

bool can_move(int fd) {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::strcmp(term, "dumb") != 0 && ::isatty(fd) == 1;
}

void MovingLine::show(const std::string& text) {
  if (!on_) return;
  // In the last column some terminals wrap at once.
  const auto [line, width] = first_characters(printable(text), columns_of(STDERR_FILENO) - 1);
  const std::string blanks(width_ > width ? width_ - width : 0, ' ');
  print_error("\r" + line + blanks + (line.empty() ? "\r" : ""));
  width_ = width;
}

}  // namespace lockstep
