#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/schema.h"
#include "scenarios/parse/suite.h"

namespace lockstep {

// A file with axes, whatever its combinations are: scenarios (suite.h), and those of programs
// (sim/tools/program/scenario.h). Comments, `full`, --set, `matrix` and `exclude`, places of errors
// and what a terminal must not be shown are the same in all.

using CombinationAxes = std::vector<std::pair<std::string, std::string>>;  // pointer -> JSON text

struct DocumentKind {
  const Schema* schema = nullptr;  // has the keys matrix, exclude and full
  // Of a combination that matches the schema, without defaults; `fresh`: it has a value of an axis
  // that none before it had. Adds what is wrong with it.
  std::function<void(nlohmann::ordered_json document, CombinationAxes axes, bool fresh,
                     std::vector<SchemaProblem>* problems)>
      take;
  // What is wrong with the whole, so that nothing else need be said: a document of another kind.
  std::function<std::optional<SchemaProblem>(const nlohmann::ordered_json& document)> refuse = {};
};

struct LoadedDocument {
  std::string name, what;
  Places places;
  bool has_full = false;  // there is a long form
  InputErrors notes;      // not wrong, but to be changed: deprecated words
};

// Reads, checks and expands one file; `kind` is told of each combination, in a fixed order. All
// errors at once. Never throws on user input, whatever the bytes are.
Expected<LoadedDocument> load_document(const std::string& path, const SuiteOptions& options,
                                       const DocumentKind& kind);

// Of the file, absolute: what its relative paths are relative to.
std::string directory_of(const std::string& path);

}  // namespace lockstep
