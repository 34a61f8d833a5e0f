#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/pointer.h"
#include "scenarios/scenario.h"

namespace lockstep {

// What the command line adds to a scenario file.
struct SuiteOptions {
  std::vector<std::string> sets;  // "/pointer=value", in order
  std::optional<uint64_t> seed;   // --seed
  bool full = false;              // --full: the scenario's long form
  // --data, absolute: files of real data sets, for every scenario that reads a set which is there.
  std::string data_dir = {};
  // --trust-model, absolute: module files that may be loaded, which runs their code.
  std::vector<std::string> trusted_models = {};
};

// One run of a file: a combination of its axes.
struct Combination {
  Scenario scenario;
  std::vector<std::pair<std::string, std::string>> set;  // axis pointer -> value as JSON text
};

struct ScenarioFile {
  std::string path;  // as given
  std::string name;
  std::string what;
  std::vector<Combination> combinations;  // in a fixed order
  // Where a pointer stands in the file, for errors found later (by the plan): 0, 0 if not there.
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> places;
  // Pointers whose values came from the command line instead: ("/steps", "--set /steps=3").
  std::vector<std::pair<std::string, std::string>> options;
  bool reads_data_dir = false;  // some combination reads its data from SuiteOptions::data_dir
  bool has_full = false;        // there is a long form
  InputErrors notes;            // not wrong, but to be changed: deprecated words
};

// Reads, checks and expands one scenario file: JSON with comments, no trailing commas; unknown and
// duplicate keys, wrong types and ranges against scenarios/schema.json (compiled in), then `full`,
// --set, matrix and exclude, then the expectation that matches. All errors of a file are returned
// at once. Never throws on user input, whatever the bytes are.
Expected<ScenarioFile> load_scenario_file(const std::string& path, const SuiteOptions& options);

// The key of scenarios of programs (sim/tools/program), which this reader refuses.
inline constexpr const char* kProgramKey = "program";

// The scenario files of a path: itself, or all *.json but *schema.json below a directory in sorted
// order (a directory without any, and a path that does not exist, are errors).
Expected<std::vector<std::string>> find_scenario_files(const std::string& path);

// What --set did to the axes of the matrix.
struct SetEffects {
  std::set<std::string> pinned;   // these axes are gone
  std::set<std::string> changed;  // inside the values of these, some may be equal now
};

// Applies --full, which takes the document's block `full` out of it in any case, --set and --seed,
// in this order. A value at or above an axis pins that axis; one
// below an axis changes each of its values.
SetEffects apply_sets(const SuiteOptions& options, nlohmann::ordered_json* document, Places* places,
                      InputErrors* errors);

}  // namespace lockstep
