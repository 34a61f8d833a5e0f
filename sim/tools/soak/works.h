#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What a soak runs hour by hour: verbs of lockstep itself, a slice of seeds at a time. A kind of
// work is a row of a table.

enum class SoakWork { mutants, clean, explore, faults, stragglers };

// A run that did not come out as it had to, and the command that has it again.
struct SoakFailure {
  std::string name;   // of its scenario
  std::string again;  // "lockstep campaign --clean 1 --seed 7"
};

// What came of one slice.
struct SoakCounts {
  int64_t runs = 0, undecided = 0;
  std::vector<SoakFailure> failures;
};

struct SoakWorkRow {
  SoakWork work;
  const char* word;
  const char* promise;  // what each of its runs must show
  int64_t seeds;        // of a slice: some ten seconds of two cores
  bool takes_time;      // it measures: the machine has a part in what comes out
  // Words behind `lockstep`. `folder` exists and is empty.
  std::vector<std::string> (*command)(uint64_t seed, int64_t seeds, const std::string& folder);
  // Of what --json of that command holds. Throws nlohmann::json::exception for anything else.
  SoakCounts (*counts)(const nlohmann::ordered_json& document);
};

const std::vector<SoakWorkRow>& soak_works();
const SoakWorkRow& row_of(SoakWork work);
const SoakWorkRow* soak_work_of(std::string_view word);  // null: there is none
std::string soak_work_words();                           // "mutants, clean, explore, ..."

// The small training that schedules of slice `seed` are drawn for, as a scenario file holds it. Its
// name is "explored-SEED".
nlohmann::ordered_json explored_case(uint64_t seed);

}  // namespace lockstep
