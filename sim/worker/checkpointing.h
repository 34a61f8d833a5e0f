#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reducer/communicator.h"
#include "scenarios/workloads/checkpoint.h"
#include "sim/worker/rank_program.h"

namespace lockstep {

// What the scenario's checkpoint settings do in one pass of one rank: saves, loads and deletes the
// file, faults asked for included. Waits only in barriers and scenario delays; throws
// CheckpointError and CommError. One thread.
class Checkpointing {
 public:
  // The double run has a file of its own. `group` must outlive this object.
  Checkpointing(const RankContext& context, const std::string& dtype, bool primary,
                Communicator& group);

  // Before the first collective: makes the folder, as all ranks do at once, and rank 0 removes what
  // an earlier run left there.
  void prepare();
  // Steps done when this pass begins: 0, or those of the file that it resumes from.
  int64_t start_step() const { return start_step_; }
  // After every step: saves and deletes, if it is time to.
  void after_step(int64_t step, Training* training);
  // Is everything built anew after this step?
  bool resumes_after(int64_t step) const;
  // Model and optimizer as another program start would build them: from other weights.
  Training build_anew() const;
  // Loads the file into `training`, where this rank is to.
  void load(Training* training);
  // Empty, or in which way what was loaded differs from what this rank held before the resume
  // (saved_tensors()) or evaluates to another metric than the file says.
  std::string problem_with(const std::vector<SavedTensor>& before, Training* training);

  const std::string& path() const { return path_; }

 private:
  bool on() const;
  bool saves_after(int64_t step) const;
  bool writes() const;
  bool in_place() const;
  void save(int64_t step, Training* training);
  void save_in_turns(const std::string& bytes);
  void write_part(const std::string& bytes, bool second);
  void pause(const char* option) const;
  void meet();
  void remove_file() const;
  CheckpointFile file_of(int64_t step, Training* training);

  const RankContext& context_;
  const Scenario& scenario_;
  const Options& options_;
  const std::string dtype_;
  Communicator& group_;
  const int64_t start_step_;
  std::string path_;
  std::optional<double> metric_;  // that the loaded file holds
  std::optional<double> best_metric_;
  int64_t best_step_ = 0;
  std::vector<int64_t> resumed_after_;
};

}  // namespace lockstep
