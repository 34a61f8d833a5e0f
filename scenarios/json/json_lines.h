#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// The one way to read what a process left as JSON, in a file of one document or of one in each
// line: the agent of `lockstep verify -- COMMAND`, scripts/lockstep_record.py. The bytes are a
// stranger's. Returned are the errors of the first document that is wrong, with its place:
// "DIR/a.jsonl:3:17: error: is no line of the agent: this string does not end".

// What is wrong with a document; empty: it is taken. Or throws nlohmann::json::exception.
using TakeJson = std::function<std::string(const nlohmann::ordered_json&)>;

InputErrors read_json_facts(const std::string& path, const std::string& what, int64_t most_bytes,
                            const TakeJson& take);

struct JsonLineLimits {
  int64_t bytes, lines = int64_t{1} << 22, line_bytes = int64_t{64} << 20;  // bytes: of the file
};
// A last line without a newline is left out, whatever it holds: its process did not live to end it.
InputErrors read_json_lines(const std::string& path, const std::string& what,
                            const JsonLineLimits& limits, const TakeJson& take);

}  // namespace lockstep
