#include "scenarios/json/placed_json.h"

#include <utility>

#include "scenarios/json/json_text.h"

namespace lockstep {

Expected<PlacedJson> read_json_of(const SchemaNode& schema, std::string_view text,
                                  const std::string& file) {
  InputErrors errors;
  PlacedJson read{{}, Places(file)};
  if (!read_json(text, file, &read.document, &read.places, &errors)) return errors;
  for (const SchemaProblem& problem : check_schema(schema, read.document)) {
    InputError error{file, 0, 0, problem.pointer, problem.message, problem.allowed};
    read.places.locate(problem.pointer, problem.about_key, &error);
    errors.push_back(std::move(error));
  }
  if (!errors.empty()) return errors;
  return read;
}

}  // namespace lockstep
