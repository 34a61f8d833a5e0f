#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "scenarios/json/schema.h"
#include "scenarios/parse/suite.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The Scenario of a document that matches the schema and has its defaults filled in. Problems: more
// than one size of the batch, or none. `directory`: of the scenario's file, absolute.
Scenario to_scenario(const nlohmann::ordered_json& document, const std::string& directory,
                     std::vector<SchemaProblem>* problems);

// Entries of "expect" that can hold, up to the first that holds for every version of LibTorch; pass
// where none does.
std::vector<Expectation> select_expectations(const nlohmann::ordered_json& document,
                                             std::vector<SchemaProblem>* problems);

// Typed scenarios of a file's combinations, as a DocumentKind takes them.
class ScenarioMaker {
 public:
  ScenarioMaker(std::string directory, const SuiteOptions& options, ScenarioFile* file)
      : directory_(std::move(directory)), options_(options), file_(file) {}

  void take(nlohmann::ordered_json document, std::vector<std::pair<std::string, std::string>> axes,
            bool fresh, std::vector<SchemaProblem>* problems);

 private:
  void take_data_dir(nlohmann::ordered_json* data);
  void check_trust(const Part& model, std::vector<SchemaProblem>* problems) const;

  std::string directory_;
  const SuiteOptions& options_;
  ScenarioFile* file_;
};

}  // namespace lockstep
