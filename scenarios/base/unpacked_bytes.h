#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

struct gzFile_s;
namespace lockstep {

// More than this without a pause() is refused: one value alone would fill the memory.
inline constexpr size_t kLongestToken = size_t{1} << 20;
// So much may come out of a file of any size; beyond that at most kMostExpansion times its size.
inline constexpr int64_t kUnpackedAlways = int64_t{64} << 20;
inline constexpr int64_t kMostExpansion = 200;
inline constexpr int64_t kUnpackedMost = int64_t{1} << 31;

// Ends the reading: a token or a file beyond the limits.
struct TooMuch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The bytes of a file one after the other; of a gzip file those that were packed. Nothing but a
// piece of them is ever in memory. Not to be copied; one thread.
class UnpackedBytes {
 public:
  // Bad input: what open_foreign_file() refuses. unpacked_always: in place of kUnpackedAlways.
  static Expected<std::unique_ptr<UnpackedBytes>> open(const std::string& path,
                                                       int64_t unpacked_always = kUnpackedAlways);
  ~UnpackedBytes();
  UnpackedBytes(const UnpackedBytes&) = delete;
  UnpackedBytes& operator=(const UnpackedBytes&) = delete;

  bool ended() { return at_ == piece_.size() && !refill(); }
  char peek() const { return piece_[at_]; }
  // Throws TooMuch.
  void advance() {
    if (newline_) {
      ++line_;
      column_ = 0;
    }
    ++column_;
    newline_ = piece_[at_++] == '\n';
    if (++since_pause_ > kLongestToken) too_long();
  }
  // A value is complete.
  void pause() { since_pause_ = 0; }

  // Of the byte that was taken last; 1, 1 before any was.
  int64_t line() const { return line_; }
  int64_t column() const { return std::max<int64_t>(1, column_); }
  // Reads what is left without looking at it: a damaged gzip file may give other bytes before it
  // shows. Throws TooMuch.
  void look_for_damage();
  // Why the bytes ended before the file did; empty: they did not.
  const std::string& problem() const { return problem_; }

  // For parsers that read iterators.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = char;

    Iterator() = default;
    explicit Iterator(UnpackedBytes* bytes) : bytes_(bytes) {}
    char operator*() const { return bytes_->peek(); }
    Iterator& operator++() {
      bytes_->advance();
      return *this;
    }
    void operator++(int) { bytes_->advance(); }
    bool operator==(const Iterator& other) const { return at_end() == other.at_end(); }
    bool operator!=(const Iterator& other) const { return !(*this == other); }

   private:
    bool at_end() const { return bytes_ == nullptr || bytes_->ended(); }
    UnpackedBytes* bytes_ = nullptr;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return {}; }

 private:
  UnpackedBytes(gzFile_s* file, int64_t unpacked_most)
      : file_(file), unpacked_most_(unpacked_most) {}
  bool refill();
  [[noreturn]] void too_long() const;

  gzFile_s* file_;
  int64_t unpacked_most_;
  int64_t unpacked_bytes_ = 0;
  std::vector<char> piece_;
  size_t at_ = 0;
  size_t since_pause_ = 0;
  int64_t line_ = 1, column_ = 0;
  bool newline_ = false;  // the byte taken last was one
  std::string problem_;
};

}  // namespace lockstep
