#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

// Writes plain values (dictionaries, lists, texts, numbers) as a pickle of protocol 2, which Python
// reads with pickle.load. A dictionary is begin_dict(), then key and value in turn, then
// end_dict().
class PickleWriter {
 public:
  PickleWriter() : bytes_("\x80\x02") {}

  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }
  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }
  void begin_tuple() { bytes_ += '('; }
  void end_tuple() { bytes_ += 't'; }

  void text(std::string_view value);  // UTF-8; one that was written before is a few bytes
  void integer(int64_t value);
  void real(double value);
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void none() { bytes_ += 'N'; }

  // The whole pickle: nothing can be written after it.
  std::string take();

 private:
  void put(uint64_t value, int bytes);  // least significant byte first

  std::string bytes_;
  std::map<std::string, uint32_t, std::less<>> written_;  // text -> its number in the memo
};

}  // namespace lockstep
