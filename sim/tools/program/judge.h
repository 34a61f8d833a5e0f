#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/verdict.h"
#include "sim/tools/program/causes.h"
#include "sim/tools/program/recording.h"

namespace lockstep {

// Of a run of one device that found a file of the ranks'.
inline constexpr const char* kResumedOfRanks =
    "one device resumed from what the ranks' run had saved: let each run begin in a folder of its "
    "own, as with -- sh -c 'cd $(mktemp -d) && exec python3 /path/to/train.py'";

struct ProgramFinding {
  Verdict verdict = Verdict::pass;
  ProgramCause cause = ProgramCause::none;
  int64_t step = 0;         // from 1; 0: of the run as a whole
  std::string entry, line;  // "gradient of fc.weight"; "train.py:31"
  std::string words;        // the evidence, or why it is inconclusive
  int64_t steps = 0, skipped = 0;
  double worst = 0;            // distance
  bool other_data = false;     // inconclusive: one device began, or went on, with other numbers
  bool written_batch = false;  // inconclusive: one device divides by a rank's number of samples
  bool times_ranks = false;    // gradients are those of one device, times the number of ranks
  bool same_loaded = false;    // although its loaders gave it what those of the ranks gave them
};

// Relative to a tensor's norm; of sums of other addends in double, 1e-15 is usual.
inline constexpr double kProgramBound = 1e-9;
// What is beyond the bound and below this may be a cast to float32 within the program:
// inconclusive.
inline constexpr double kProgramFailure = 1e-5;
// Within it a factor is that factor.
inline constexpr double kProgramRatioBound = 1e-6;

// Of what cannot be told, and why.
ProgramFinding inconclusive(const std::string& words, int64_t step = 0);
// Of a failure that may be none, and why.
ProgramFinding excused(const ProgramFinding& failure, const std::string& why);

// Do all ranks hold the same bits after every step?
ProgramFinding judge_replicas(const std::vector<ProgramRank>& ranks);
// Is the training of the ranks that of one device on the whole batch?
ProgramFinding judge_one_device(const std::vector<ProgramRank>& ranks, const ProgramRank& one);
// The same, whatever is said of how samplers deal: order, epochs, samples that they repeat.
ProgramFinding judge_steps(const std::vector<ProgramRank>& ranks, const ProgramRank& one);
// The same of one device that was handed the weights, inputs and targets of the ranks, after a
// first one, `before`, that had drawn others. What is computed of a target before a loss of
// torch's, or a model, is given it cannot be handed on: distances that no factor explains are no
// failure. Samples that a sampler repeats matter as little as any that ranks draw.
ProgramFinding judge_handed(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                            const ProgramFinding& before);
// What such a run makes likely, and each rank's own gradients (of a drill) can prove.
std::optional<ProgramFinding> suspected_of_handed(const std::vector<ProgramRank>& ranks,
                                                  const ProgramRank& one);
enum class HandedWay { none, together, in_turn };  // a step's batches as one, or one after another
HandedWay handed_way(const ProgramRank& rank, const ProgramRank& one, int64_t world);

// Of a run that broke off: what the ranks that left a whole recording say, else no cause.
ProgramFinding judge_broken_off(const std::vector<ProgramRank>& ranks);

// Controls: both lanes must fail on facts in which one bit of one hash is flipped, or one update is
// scaled. False where they do not, or there is nothing to spoil.
bool replica_control_fails(std::vector<ProgramRank> ranks);
bool one_device_control_fails(std::vector<ProgramRank> ranks, ProgramRank one);

}  // namespace lockstep
