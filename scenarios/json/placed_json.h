#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "scenarios/base/error.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"

namespace lockstep {

// A document that is as its schema wants it, and where its values stand, for errors of those who
// read on.
struct PlacedJson {
  nlohmann::ordered_json document;
  Places places;
};
// `file`: the printable name that errors have. All that is wrong with the text, each at its place.
Expected<PlacedJson> read_json_of(const SchemaNode& schema, std::string_view text,
                                  const std::string& file);

}  // namespace lockstep
