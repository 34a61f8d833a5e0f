#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/pointer.h"

namespace lockstep {

// The texts of scenarios/*_schema.json, as shipped and compiled in.
const char* scenario_parts_schema_text();     // what scenarios/scenario_schema.h is made from
const char* result_schema_text();             // of what `lockstep verify --json` writes
const char* sweep_schema_text();              // ... `lockstep sweep`
const char* what_if_schema_text();            // ... `lockstep whatif`, and `analyze` of a trace
const char* collective_schema_text();         // ... `lockstep collective`
const char* explore_schema_text();            // ... `lockstep explore`
const char* soak_schema_text();               // ... `lockstep soak`
const char* compare_schema_text();            // ... `lockstep compare`
const char* explain_schema_text();            // ... `lockstep explain`
const char* program_schema_text();            // ... `lockstep verify -- COMMAND`
const char* program_run_schema_text();        // ... `lockstep run -- COMMAND`
const char* program_scenarios_schema_text();  // ... `lockstep verify` of scenarios of programs
const char* program_sweep_schema_text();      // ... `lockstep sweep -- COMMAND`
const char* simulate_schema_text();           // ... `lockstep simulate`
const char* profile_schema_text();            // of scenarios/layer_times.h
const char* machine_schema_text();            // of sim/des/machine_model.h
const char* table_schema_text();              // of sim/calibrate/published_table.h

// A JSON Schema of draft-07 made ready to check thousands of documents, to say in a user's words
// what is wrong, and to fill in defaults. It knows the keywords that scenarios/schema.json uses;
// any other aborts. "x-refused" maps a word that is refused on purpose to the reason.
struct SchemaNode {
  struct Branch {
    const SchemaNode* condition = nullptr;
    const SchemaNode* then = nullptr;       // may be nullptr
    const SchemaNode* otherwise = nullptr;  // may be nullptr
  };
  std::vector<std::string> types;                 // one of these; empty: any
  const nlohmann::ordered_json* words = nullptr;  // enum: a list
  const nlohmann::ordered_json* constant = nullptr;
  const nlohmann::ordered_json* default_value = nullptr;
  const nlohmann::ordered_json* refused = nullptr;
  std::optional<double> minimum, maximum, above;
  std::optional<int64_t> min_items, max_items, min_length, max_length, min_keys;
  bool unique = false;
  const SchemaNode* items = nullptr;
  std::vector<std::pair<std::string, const SchemaNode*>> keys;
  const SchemaNode* other_keys = nullptr;
  bool other_keys_allowed = true;
  std::vector<std::string> required;
  std::vector<Branch> branches;

  const SchemaNode* key(std::string_view name) const;
};

class Schema {
 public:
  // `text`: one of the schemas that are compiled in. It must outlive nothing: it is copied.
  explicit Schema(const char* text);
  explicit Schema(nlohmann::ordered_json document);
  ~Schema();
  Schema(const Schema&) = delete;
  Schema& operator=(const Schema&) = delete;

  const SchemaNode& root() const { return *root_; }
  const nlohmann::ordered_json& document() const { return *document_; }

 private:
  const SchemaNode* compile(const nlohmann::ordered_json& json);
  void keyword(const std::string& word, const nlohmann::ordered_json& value, SchemaNode* node);

  std::unique_ptr<nlohmann::ordered_json> document_;
  std::vector<std::unique_ptr<SchemaNode>> nodes_;
  std::map<std::string, const SchemaNode*> by_reference_;
  const SchemaNode* root_ = nullptr;
};

// What is wrong with one value or key.
struct SchemaProblem {
  std::string pointer;
  bool about_key = false;  // the key itself is wrong, not its value
  std::string message;
  std::string allowed;
  std::string meant = {};  // pointer of the key that an unknown one was probably meant to be
};

// All problems of a document (or of the part of it at `pointer`), in its order. Agrees with any
// draft-07 validator on whether there are any.
std::vector<SchemaProblem> check_schema(const SchemaNode& node,
                                        const nlohmann::ordered_json& document,
                                        const std::string& pointer = "");
bool matches_schema(const SchemaNode& node, const nlohmann::ordered_json& value);

// Each as an error at its place.
void add_errors(const std::vector<SchemaProblem>& problems, const Places& places,
                InputErrors* errors);

// Adds every default of the schema for keys that are missing, also those of the kinds chosen.
void fill_defaults(const SchemaNode& node, nlohmann::ordered_json* value);

// "an integer >= 1 and <= 64"
std::string allowed_text(const SchemaNode& node);

}  // namespace lockstep
