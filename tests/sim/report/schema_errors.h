#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

namespace lockstep {

// What a document breaks of a schema, a line each; empty: it fits.
inline std::string schema_errors(const char* schema_text, const nlohmann::json& document) {
  const auto schema_json = nlohmann::json::parse(schema_text);
  valijson::Schema schema;
  valijson::SchemaParser parser;
  parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(schema_json), schema);
  valijson::ValidationResults results;
  valijson::Validator validator;
  std::string text;
  if (validator.validate(schema, valijson::adapters::NlohmannJsonAdapter(document), &results))
    return text;
  for (valijson::ValidationResults::Error error; results.popError(error);)
    text += (error.context.empty() ? "" : error.context.back()) + ": " + error.description + "\n";
  return text.empty() ? "invalid" : text;
}

}  // namespace lockstep
