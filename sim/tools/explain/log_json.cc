#include "sim/tools/explain/log_json.h"

#include <nlohmann/json.hpp>

#include <array>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/tools/explain/log_fields.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// In which the line is that docker and fluentd, Google's, Loki's and Python's loggers hand on; then
// where the latter put an exception.
constexpr std::array<const char*, 8> kTexts = {"log",  "message", "msg",  "text",
                                               "body", "event",   "line", "textPayload"};
constexpr std::array<const char*, 6> kExceptions = {"exc_info",    "exception", "exc_text",
                                                    "stack_trace", "traceback", "stack"};
constexpr std::array<const char*, 3> kRanks = {"rank", "global_rank", "RANK"};
constexpr std::array<const char*, 4> kWithin = {"extra", "fields", "labels", "context"};

std::optional<int64_t> rank_of(const Json& value) {
  if (value.is_number_integer()) return rank_at(value.dump());
  if (!value.is_string()) return std::nullopt;
  const auto number = number_in<int64_t>(value.get_ref<const std::string&>());
  return number && *number >= 0 && *number < kLogRankMost ? number : std::nullopt;
}

std::optional<int64_t> rank_in(const Json& object) {
  for (const char* key : kRanks)
    if (const auto found = object.find(key); found != object.end())
      if (const auto rank = rank_of(*found)) return rank;
  return std::nullopt;
}

void add_text(const Json& object, const char* key, std::string* text) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return;
  if (!text->empty() && !text->ends_with('\n')) *text += '\n';
  *text += found->get_ref<const std::string&>();
}

std::optional<JsonRecord> record_in(std::string_view line) {
  while (line.ends_with(' ') || line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (!line.starts_with("{\"") || !line.ends_with('}')) return std::nullopt;
  const auto object = parse_foreign_json(line, "", "a line of a log", JsonLimits{});
  if (!object || !object.value().is_object()) return std::nullopt;
  JsonRecord record;
  for (const char* key : kTexts)
    if (record.text.empty()) add_text(object.value(), key, &record.text);
  for (const char* key : kExceptions) add_text(object.value(), key, &record.text);
  if (record.text.empty()) return std::nullopt;
  auto rank = rank_in(object.value());
  for (const char* key : kWithin)
    if (const auto found = object.value().find(key);
        !rank && found != object.value().end() && found->is_object())
      rank = rank_in(*found);
  record.rank = rank.value_or(-1);
  return record;
}

}  // namespace

std::optional<JsonRecord> json_record(std::string_view line) {
  auto record = record_in(line);
  if (!record) return record;
  auto inner = record_in(record->text);
  if (inner && inner->rank < 0) inner->rank = record->rank;
  return inner ? inner : record;
}

}  // namespace lockstep
