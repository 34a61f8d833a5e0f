#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/launch/executor.h"
#include "sim/record/evidence.h"

namespace lockstep {

// One rank's records and evidence, sorted by what the judge asks. Events of the double run are left
// out where they would be taken for the primary run's.

using StepValues = std::vector<std::pair<int64_t, uint64_t>>;  // step -> value, ascending

struct LaneTrace {
  int64_t compared = 0;
  int64_t compared_step = -1;                         // step of the last comparison
  std::optional<int64_t> mismatch_step;               // of the first mismatch
  std::optional<double> distance;                     // worst
  std::optional<int64_t> beyond_step;                 // first step whose distance is out of bounds
  std::optional<bool> control;                        // false: missed, at least once
  std::vector<std::pair<int64_t, double>> statistic;  // step -> the lane's number
};

struct RankView {
  static constexpr size_t kLanes = static_cast<size_t>(Lane::invariant) + 1;  // the last number

  int64_t rank = 0;
  uint64_t dropped = 0;
  bool records_lost = false;  // with the launcher that had them: where it was is not known
  std::array<StepValues, kStateKinds> chains;  // by StateKind
  StepValues collectives;
  std::array<LaneTrace, kLanes> lanes;             // by Lane
  std::vector<Event> arrivals;                     // of the primary run
  std::vector<std::pair<Check, bool>> checks;      // failed if it failed once
  std::vector<std::pair<int64_t, double>> losses;  // step -> its own, of the primary run
  std::vector<std::pair<int64_t, double>> golden_losses, norm_ratios;  // step -> value
  std::optional<bool> close;  // its weights to those of one device
  int64_t last_step_end = 0;  // of the primary run
  bool primary_done = false, finished = false;
  std::optional<Event> last_phase;        // primary or double run
  std::optional<Event> last_event;        // one that tells where the rank was: never a receipt
  std::optional<uint32_t> last_arrival;   // sequence, primary or double run
  std::optional<uint32_t> last_end;       // ... of the collectives that ended
  std::optional<int64_t> last_parameter;  // whose gradient was ready last in the phase under way
  int64_t events_in_step = 0;             // of those that tell where it was, in its last step
  std::optional<int64_t> error_ns;        // when it gave up
  std::optional<std::array<uint64_t, 2>> final_hash;
  Evidence evidence;

  const LaneTrace& lane(Lane which) const { return lanes.at(static_cast<size_t>(which)); }
};

// Keeps the larger of both; what is not a number is larger than all, and stays.
void keep_worst(double value, std::optional<double>* worst);

// bound: distances above it (or not a number) are out of bounds.
RankView view_of(const RankRecords& records, double bound);

// One view a rank, evidence included; a damaged or absent document gives empty evidence.
std::vector<RankView> views_of(const RunOutcome& outcome);
// The same without what was recorded after `time_ns`; evidence is whole.
std::vector<RankView> views_at(const RunOutcome& outcome, const std::vector<RankView>& views,
                               int64_t time_ns);

// What records say of a rank, in the words of reports.

// "all_reduce 12 (bucket 1, 0.4 MB)".
std::string to_words(const Explanation::Collective& collective);
Explanation::Collective collective_of(const Event& arrival);
// Of an arrival, in place of a bucket: this less the rank that a program's call names as its source
// or destination (python/lockstep/agent/run/arrivals.py).
inline constexpr int32_t kRootSubject = -2;
std::string collective_text(const Event& arrival);

// "arrival of all_reduce 12 (bucket 1, 0.4 MB)"; empty: before the first record.
std::string event_text(const RankView& view);
// "in backward of step 3", "in rendezvous", "before its first record".
std::string where(const RankView* view);
// The layer of a parameter, "fc2" of "fc2.weight"; empty where the model's manifest is not known.
std::string layer_of(const Scenario& scenario, int64_t parameter);

// Null: a thread, or one that never started.
const ProcessEnd* end_of(const RunOutcome& outcome, int64_t rank);
// "stopped (state T)", "waiting in futex"; empty: not known.
std::string to_words(const ProcessState& state);
std::string signal_text(int signal);                 // "SIGKILL (9)"
std::string ranks_text(std::vector<int64_t> ranks);  // "rank 2", "ranks 0, 1 and 3"
std::string duration_text(int64_t ms);               // "120 ms", "31.2 s"

}  // namespace lockstep
