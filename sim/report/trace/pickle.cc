#include "sim/report/trace/pickle.h"

#include <bit>
#include <limits>
#include <utility>

namespace lockstep {

void PickleWriter::put(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
}

void PickleWriter::text(std::string_view value) {
  if (const auto found = written_.find(value); found != written_.end()) {
    bytes_ += 'j';
    return put(found->second, 4);
  }
  bytes_ += 'X';
  put(value.size(), 4);
  bytes_ += value;
  const auto number = static_cast<uint32_t>(written_.size());
  written_.emplace(value, number);
  bytes_ += 'r';
  put(number, 4);
}

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) {
    bytes_ += 'K';
    return put(static_cast<uint64_t>(value), 1);
  }
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    bytes_ += 'J';
    return put(static_cast<uint64_t>(value), 4);
  }
  bytes_ += "\x8a\x08";
  put(static_cast<uint64_t>(value), 8);
}

void PickleWriter::real(double value) {
  bytes_ += 'G';
  put(__builtin_bswap64(std::bit_cast<uint64_t>(value)), 8);
}

std::string PickleWriter::take() {
  bytes_ += '.';
  return std::exchange(bytes_, "");
}

}  // namespace lockstep
