#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/judge/recorded_end.h"

namespace lockstep {

// What `lockstep analyze` says of the end of a recording.

// "rank 1 never came to bucket 0 in backward of step 6: ..." Empty for a whole one; without a
// newline.
std::string to_text(const RecordedEnd& end);
const char* to_word(RecordedEnd::Kind kind);
const char* to_word(RecordedEnd::How how);
nlohmann::ordered_json as_json(const RecordedEnd& end);
// Of as_json(), for a JSON schema.
nlohmann::ordered_json recorded_end_schema();

}  // namespace lockstep
