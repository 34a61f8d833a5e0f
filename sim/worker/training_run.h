#pragma once

#include <memory>
#include <string>

#include "reducer/reducer.h"
#include "scenarios/layer_times.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/layer_faults.h"
#include "sim/fault/training_mutants.h"
#include "sim/worker/checkpointing.h"
#include "sim/worker/communication.h"
#include "sim/worker/export.h"
#include "sim/worker/observer.h"
#include "sim/worker/partition.h"
#include "sim/worker/probe.h"
#include "sim/worker/rank_program.h"
#include "sim/worker/rank_samples.h"
#include "sim/worker/shards_together.h"

namespace lockstep {

// Trains the scenario once, from the first random number to the last step: the primary run, or the
// double run. Throws CommError and std::exception. One thread.
class TrainingRun {
 public:
  TrainingRun(const RankContext& context, Communicator& communicator, RankFaults& faults,
              RecordingProbe& probe, const std::string& dtype, bool primary, Evidence* evidence);
  ~TrainingRun();

  void run();

 private:
  void load();
  void construct();
  void share_out_training();
  void build_reducer();
  ReducerOptions reducer_options();
  void resume(int64_t step);
  void consolidate();
  int64_t optimizer_bytes() const;
  int64_t last_step();
  void check_values();
  void check_gradients();
  void note_samples();
  void note_undeclared_draws();
  void note_unrepeatable_forward();
  void record_check(Check check, const std::string& problem);
  void step(int64_t step);
  void forward_again(const Batch& batch, bool synchronizes);
  void shadow(int64_t step);
  void end_join(int64_t step);
  // A forward and backward of a step: samples, and what their loss counts for.
  struct MicroBatch {
    Batch samples;
    double share = 1;
  };
  std::vector<MicroBatch> micro_batches_of(int64_t step, const Batch& shard);
  std::vector<MicroBatch> of_virtual_shards(int64_t step, const Batch& all);
  // Returns the loss, where the step's is reported.
  double train_on(const std::vector<MicroBatch>& parts);
  void train_together(const std::vector<MicroBatch>& parts);
  double micro_batch(const Batch& batch, double share, bool first, bool synchronizes);
  bool reports_loss(int64_t step) const;
  void note_loss(int64_t step, double loss);

  const RankContext& context_;
  const Scenario& scenario_;
  const bool gathers_;  // one process with the outputs of all replicas: the loss is over all
  Communicator& communicator_;
  RankFaults& faults_;
  RecordingProbe& probe_;
  RankBatch batch_;              // for layers that normalize over all ranks
  StatisticsMutant seen_batch_;  // what they see of it
  // Where they do, of reducer invariant.
  std::unique_ptr<ShardsTogether> shards_together_;
  const std::string dtype_;
  const bool primary_;
  // Of emulated compute, in the primary run; null where compute is real, or nobody looks at times.
  std::unique_ptr<ComputeClock> compute_clock_;
  std::unique_ptr<DeviceClock> device_clock_;  // null where the host's times are the work's
  Evidence* evidence_;
  Checkpointing checkpointing_;
  std::unique_ptr<RankSamples> samples_;
  Batch last_batch_;            // of the last forward; without samples before it
  bool samples_noted_ = false;  // that they are not the plan's
  Training training_;
  Sharing sharing_;          // of the training
  TrainingMutants mutants_;  // before what it watches is gone
  StepMutants step_mutants_;
  GradientMutants gradient_mutants_;
  LayerFaults layer_faults_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<Export> export_;  // rank 0 of a primary run that is exported
};

}  // namespace lockstep
