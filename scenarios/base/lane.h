#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// The ways in which a run is compared, a row for each. What a lane does in plan, worker and judge
// follows from its method; where it can say nothing is in sim/plan/lanes.cc.

// The numbers are part of the format of records (docs/records.md): never reused, only added.
enum class Lane : int32_t {
  replica = 1,
  replay,
  float64,
  rounding,
  exact,
  one_device,  // of stored goldens and common checks; no scenario names it
  communication,
  invariant
};

enum class LaneMethod {
  replicas,   // hashes of the ranks' states with each other
  bits,       // bytes of each rank with a golden run's
  distance,   // numbers of each rank with a golden run's, within a bound
  statistic,  // one number a step, of what rank 0 computed (golden/statistics.h)
};

struct LaneRow {
  Lane lane;
  const char* word;
  LaneMethod method;
  int evidence_rank;        // of lanes that failed in the same step, the lowest describes it
  const char* description;  // to who writes a scenario
};

// Those that a scenario may name, in the order of tables.
std::span<const LaneRow> lanes();
const LaneRow& row_of(Lane lane);        // of any lane
const std::string& lane_words();         // of those, a space between
const std::string& lane_descriptions();  // "The ways in which ... replica: ... replay: ..."
const char* to_word(Lane lane);          // "none" for a number of no lane
std::optional<Lane> lane_from(std::string_view word);  // of those that a scenario may name

// In JSON a lane is its word. Throws what J throws, of any other.
template <class J>
void to_json(J& json, Lane lane) {
  json = to_word(lane);
}
template <class J>
void from_json(const J& json, Lane& lane) {
  const auto word = json.template get<std::string>();
  const auto found = lane_from(word);
  if (!found) throw J::other_error::create(501, "no lane is called " + word, &json);
  lane = *found;
}

}  // namespace lockstep
