#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

// A checkpoint is not what it should be: what is wrong, and where in the file. Thrown within
// sim/weights only; read_weights_file() makes bad input of it.
class WrongBytes : public std::runtime_error {
 public:
  explicit WrongBytes(const std::string& what, std::string allowed = "")
      : std::runtime_error(printable(what)), allowed_(std::move(allowed)) {}
  const std::string& allowed() const { return allowed_; }

 private:
  // Names from the file are part of the sentence: they are not to steer a terminal, nor to fill it.
  static std::string printable(std::string text) {
    constexpr size_t kMost = 400;
    if (text.size() > kMost) {
      text.resize(kMost);
      text += "...";
    }
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return text;
  }
  std::string allowed_;
};

}  // namespace lockstep
