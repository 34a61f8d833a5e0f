#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "sim/weights/wrong_bytes.h"

namespace lockstep {

// The bytes of a pickle, one after the other; throws WrongBytes where there are no more.
class CodeReader {
 public:
  static constexpr size_t kMostName = 200;  // characters of a module's or class's

  explicit CodeReader(std::span<const std::byte> code) : code_(code) {}

  size_t size() const { return code_.size(); }
  size_t at() const { return at_; }
  size_t left() const { return code_.size() - at_; }
  std::string_view chars(size_t at, size_t size) const {
    return {reinterpret_cast<const char*>(code_.data()) + at, size};
  }
  template <class T>
  T take() {
    T number;
    std::memcpy(&number, take_text(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view take_text(size_t size) {
    if (size > code_.size() - at_) throw WrongBytes("cut short");
    at_ += size;
    return chars(at_ - size, size);
  }
  std::string_view take_line() {
    const std::string_view rest = chars(at_, code_.size() - at_).substr(0, kMostName);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) throw WrongBytes("a name without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

 private:
  std::span<const std::byte> code_;
  size_t at_ = 0;
};

}  // namespace lockstep
