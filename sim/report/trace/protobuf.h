#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// A message in protobuf's wire format, field by field.
class ProtobufMessage {
 public:
  void number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
  }
  void text(int field, std::string_view value) {
    varint((static_cast<uint64_t>(field) << 3) | 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const ProtobufMessage& value) { text(field, value.bytes_); }

  // Behind its length, as messages of a stream are.
  std::string delimited() const {
    ProtobufMessage length;
    length.varint(bytes_.size());
    return length.bytes_ + bytes_;
  }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace lockstep
