// What a source holds in which scripts/mutation/placing.py has placed its mutants: one program is
// all of them. Which of them it is, LOCKSTEP_MUTANT says, a number, or 0: none. A file that
// LOCKSTEP_MUTANT_NOTES names has a byte for each mutant, of which a run without one says what it
// came to: 1, its place; 2, where it would have made a difference there.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

namespace lockstep_mutant {

// The mutant that this process is.
inline const int active = [] {
  const char* text = std::getenv("LOCKSTEP_MUTANT");
  return text == nullptr ? 0 : std::atoi(text);
}();

// Shared, for what a rank that is killed came to counts as well; null where nobody asks.
inline volatile unsigned char* mapped_notes() {
  const char* path = std::getenv("LOCKSTEP_MUTANT_NOTES");
  const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) return nullptr;
  void* mapped = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE,
                        MAP_SHARED, file, 0);
  ::close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<volatile unsigned char*>(mapped);
}
inline volatile unsigned char* const notes = mapped_notes();

// A place whose mutant always makes a difference.
inline bool on(int number) {
  if (notes != nullptr) notes[number] = 3;
  return active == number;
}

// A place whose mutant makes one where `differs` says so.
inline bool at(int number) {
  if (notes != nullptr) notes[number] = notes[number] | 1;
  return active == number;
}

template <class Value, class Other>
Value differs(int number, Value value, Other&& other) {
  if (notes != nullptr) {
    if constexpr (std::is_scalar_v<Value> && std::is_scalar_v<decltype(other())>) {
      if ((notes[number] & 2) == 0 && other() != value) notes[number] = 3;
    } else {
      notes[number] = 3;
    }
  }
  return value;
}

// Quotients of integers, without the signal that the processor makes of a divisor of 0.
template <class Left, class Right>
auto quotient(const Left& left, const Right& right) {
  if constexpr (std::is_integral_v<Left> && std::is_integral_v<Right>)
    return right == 0 ? static_cast<decltype(left / right)>(left) : left / right;
  else
    return left / right;
}

}  // namespace lockstep_mutant
