#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// A line that is a record of its own, {"log": "...", "stream": "stderr"} of docker, {"rank": 3,
// "message": "...", "exc_info": "..."} of a program's logger, or the latter within the former: what
// it says, as the lines of a log, and whose it is, -1 where no field tells.
struct JsonRecord {
  int64_t rank = -1;
  std::string text;
};

std::optional<JsonRecord> json_record(std::string_view line);

}  // namespace lockstep
