#include "sim/tools/explain/log_record.h"

#include "sim/tools/explain/log_fields.h"

namespace lockstep {
namespace {

constexpr size_t kDateMost = 8;    // digits: 626, 1128, 20251128
constexpr size_t kFileMost = 120;  // of a file's name

// Takes what it asks for from the front; after a miss, nothing more.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool ok() const { return ok_; }
  std::string_view rest() const { return rest_; }
  size_t digits(size_t least, size_t most) {
    size_t count = 0;
    while (ok_ && count < rest_.size() && is_digit(rest_[count])) ++count;
    ok_ = ok_ && count >= least && count <= most;
    if (ok_) rest_.remove_prefix(count);
    return count;
  }
  bool skip(char c) {
    const bool there = ok_ && rest_.starts_with(c);
    if (there) rest_.remove_prefix(1);
    return there;
  }
  void must(char c) { ok_ = skip(c) && ok_; }
  void spaces() {
    must(' ');
    while (skip(' ')) continue;
  }
  // "file.cc:123]"
  void place() {
    const size_t end = rest_.substr(0, kFileMost).find(':');
    ok_ = ok_ && end != std::string_view::npos && end > 0 &&
          rest_.substr(0, end).find_first_of(" ]") == std::string_view::npos;
    if (ok_) rest_.remove_prefix(end + 1);
    digits(1, kDateMost);
    must(']');
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

char native_level(std::string_view line) {
  Cursor cursor(line);
  const bool bracket = cursor.skip('[');
  const char level = cursor.rest().empty() ? '\0' : cursor.rest().front();
  if (level == '\0' || std::string_view("IWEF").find(level) == std::string_view::npos) return 0;
  cursor.must(level);
  if (bracket && cursor.rest().starts_with(' ')) {
    cursor.must(' ');
  } else {
    cursor.digits(3, kDateMost);
    cursor.spaces();
    cursor.digits(2, 2);
    cursor.must(':');
    cursor.digits(2, 2);
    cursor.must(':');
    cursor.digits(2, 12);  // absl counts seconds since 1970
    cursor.must('.');
    cursor.digits(1, 9);
    cursor.spaces();
    const std::string_view thread = cursor.rest();
    if (cursor.digits(0, 20) > 0 && cursor.rest().starts_with(' '))
      cursor.spaces();
    else
      cursor = cursor.ok() ? Cursor(thread) : cursor;
  }
  cursor.place();
  return cursor.ok() ? level : '\0';
}

size_t python_record_head(std::string_view line) {
  for (const std::string_view level : {"DEBUG ", "INFO ", "WARNING ", "ERROR ", "CRITICAL "}) {
    if (!line.starts_with(level)) continue;
    Cursor cursor(line.substr(level.size()));
    for (const char end : {'-', ' ', ':', ':', ' '}) {
      cursor.digits(2, 2);
      cursor.must(end);
    }
    cursor.skip('[');
    cursor.place();
    if (!cursor.ok()) return 0;
    cursor.skip(' ');
    return line.size() - cursor.rest().size();
  }
  return 0;
}

}  // namespace lockstep
