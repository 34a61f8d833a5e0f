#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// A promise that our own code makes to itself. Broken, it aborts in release too (CONTRIBUTING.md):
// bad input and failures of peers must never end here.
#define LOCKSTEP_CHECK(condition, message)                                 \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::lockstep::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)

namespace lockstep {

// Prints "lockstep: internal error: ..." with the place and aborts. Never returns.
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               std::string_view message);

// One piece of bad input, as a user can mend it. line and column count from 1; 0 means unknown
// (a command line option, say). pointer is a JSON pointer ("/optimizer/lr") or empty.
struct InputError {
  std::string file;
  int64_t line = 0;
  int64_t column = 0;
  std::string pointer;
  std::string message;  // what is wrong, with the value: one line, no trailing full stop
  std::string allowed;  // what would be right, or empty
};
using InputErrors = std::vector<InputError>;

// Of a file as a whole, and of the command line.
InputError file_error(const std::string& path, const std::string& message,
                      const std::string& allowed = "");
InputError option_error(const std::string& message, const std::string& allowed = "");

// "broken.json:7:3: error: unknown key \"wrld_size\"; did you mean \"world_size\"?"
std::string to_text(const InputError& error, std::string_view severity = "error");  // or "note"

// A value, or why the input does not give one. Bad input is returned, never thrown.
template <class T>
class Expected {
 public:
  Expected(T value) : state_(std::move(value)) {}
  Expected(InputErrors errors) : state_(std::move(errors)) {
    LOCKSTEP_CHECK(!std::get<1>(state_).empty(), "a failure without an error");
  }
  Expected(InputError error) : state_(InputErrors{std::move(error)}) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& value() {
    LOCKSTEP_CHECK(state_.index() == 0, "value() of bad input");
    return std::get<0>(state_);
  }
  const T& value() const { return const_cast<Expected*>(this)->value(); }
  T value_or(T otherwise) const& { return *this ? value() : std::move(otherwise); }
  const InputErrors& errors() const { return std::get<1>(state_); }

 private:
  std::variant<T, InputErrors> state_;
};

}  // namespace lockstep
