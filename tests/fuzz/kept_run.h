#pragma once

#include <string>

namespace lockstep::fuzz {

// A run of two ranks and three steps as --keep leaves it, made in virtual time: what a target puts
// in place of one of its files is the only thing in it that is not as it should be.
struct KeptRun {
  std::string dir;
  std::string plan, ends, evidence, records;  // the texts and bytes, evidence and records of rank 0
};
const KeptRun& kept_run();

// ends.json that belongs to another plan.json.
std::string ends_for(const std::string& plan);

// What takes most of the time of judge_kept_run(), only on demand.
struct Slow {
  bool intervals = true;  // and forecasts: they draw thousands of samples again
  bool simulation = true;
};

// All that analyze, whatif and calibrate derive from a run directory.
void judge_kept_run(const std::string& dir, const Slow& slow);

}  // namespace lockstep::fuzz
