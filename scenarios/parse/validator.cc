
#include <fmt/format.h>

#include <nlohmann/json.hpp>
// The only unit that includes valijson.
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "scenarios/base/text.h"
#include "scenarios/scenario_schema.h"

namespace lockstep {
namespace {

using valijson::adapters::NlohmannJsonAdapter;

// valijson's adapter is made for nlohmann::json, with sorted keys.
const valijson::Schema& compiled() {
  static const valijson::Schema* const schema = [] {
    static const nlohmann::json document = scenario_schema().document();
    auto* parsed = new valijson::Schema;  // lives as long as the process
    valijson::SchemaParser(valijson::SchemaParser::kDraft7)
        .populateSchema(NlohmannJsonAdapter(document), *parsed);
    return parsed;
  }();
  return *schema;
}

}  // namespace

std::optional<std::string> validator_complaint(const nlohmann::ordered_json& document) {
  const nlohmann::json sorted = document;
  valijson::ValidationResults results;
  valijson::Validator validator(valijson::Validator::kStrongTypes);
  if (validator.validate(compiled(), NlohmannJsonAdapter(sorted), &results)) return {};
  valijson::ValidationResults::Error error;
  if (!results.popError(error)) return "the scenario does not match the schema";
  std::string place;
  for (const std::string& part : error.context) place += part;
  return printable(fmt::format("{}: {}", place, error.description));
}

}  // namespace lockstep
