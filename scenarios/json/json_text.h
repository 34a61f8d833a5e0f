#pragma once

#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/base/error.h"
#include "scenarios/json/pointer.h"

namespace lockstep {

struct SchemaNode;

// JSON has no word for what is not finite: text instead ("NaN", "Infinity", "-Infinity").
inline nlohmann::ordered_json number_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// null where there is none.
template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}
inline nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? number_json(*value) : nlohmann::ordered_json(nullptr);
}
inline nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

// The one reader of JSON that somebody else wrote: scenarios, results, traces, profiles, machines,
// recordings, kept runs. Time and memory grow linearly with the text, whatever it holds.

// Deeper nesting is refused, so that no input can exhaust the stack.
inline constexpr int kDeepestNesting = 100;
// Reading stops after so many errors; the last one says so.
inline constexpr size_t kMostErrors = 20;

struct JsonLimits {
  size_t values = 2'000'000;
  size_t places_bytes = size_t{64} << 20;  // of the pointers that `places` holds
  bool unsigned_64 = false;  // integers from 2^63 to 2^64 - 1 stay integers; else they are doubles
};
// What lockstep itself writes of many runs.
inline constexpr JsonLimits kResultLimits{30'000'000, 0, true};

// Reads JSON with // and /* */ comments (no trailing commas) and notes where each key and value
// stands. Duplicate keys are errors at the second one; of errors that end the reading there is
// one, and `document` stays as it was. Columns count characters. Any bytes may come: messages are
// valid UTF-8. True if there was no error; `places` may be nullptr.
bool read_json(std::string_view text, const std::string& file, nlohmann::ordered_json* document,
               Places* places, InputErrors* errors, const JsonLimits& limits = {});

// A document that is as its schema wants it, and where its values stand, for errors of those who
// read on.
struct PlacedJson {
  nlohmann::ordered_json document;
  Places places;
};
// `file`: the printable name that errors have. All that is wrong with the text, each at its place.
Expected<PlacedJson> read_json_of(const SchemaNode& schema, std::string_view text,
                                  const std::string& file);

// What a document that was taken apart lacks, short and without the library's name of it: "key
// 'rank' not found".
std::string problem_of(const nlohmann::json::exception& error);

// The same without a schema, and where places are not needed. `what` tells a user what the file
// should be ("what --json of an earlier invocation wrote"): the error's `allowed` where the JSON
// itself says none.
Expected<nlohmann::ordered_json> parse_foreign_json(std::string_view text, const std::string& file,
                                                    const std::string& what,
                                                    const JsonLimits& limits = kResultLimits);

// The whole number that `value` is, of a document that no schema has seen. Throws
// nlohmann::json::exception for anything else, and beyond int64: the library's own conversion takes
// 1e19 and 0.5 as well.
int64_t whole_number(const nlohmann::ordered_json& value);

// The same of a double: nothing for a fraction, and beyond int64, where a cast is undefined.
std::optional<int64_t> whole_of(double value);

// The same for what is simply not used where it cannot be read: a discarded value then.
nlohmann::ordered_json json_or_discarded(std::string_view text);

}  // namespace lockstep
