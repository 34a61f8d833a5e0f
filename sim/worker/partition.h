#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reducer/bucket.h"
#include "reducer/communicator.h"
#include "reducer/reducer.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// The training's model as reducer data_parallel runs it: its forward is that of one replica for
// each shard (reducer/data_parallel.h). Parameters, buffers and optimizer stay the training's own.
// Nothing where the scenario has another reducer.
void run_on_replicas(const Scenario& scenario, const std::string& dtype, Training* training);

// An optimizer of which each rank holds the state of its own pieces alone, and updates them alone.
// state() is the whole optimizer's, as load() or the last consolidate() brought it together.
class PiecewiseOptimizer : public Optimizer {
 public:
  // How updated weights reach the other ranks; collective.
  using Spread = std::function<void()>;
  // `group` must outlive this object. timeout: of one collective.
  PiecewiseOptimizer(const Part& part, NamedTensors parameters, std::vector<OptimizerShard> pieces,
                     Spread spread, Communicator& group, std::chrono::milliseconds timeout);

  // Updates this rank's pieces, then gives all ranks the new weights. Collective; throws CommError.
  void step() override;
  NamedTensors state() const override { return whole_->state(); }
  // Takes its own pieces out of a whole optimizer's state.
  void load(const NamedTensors& state) override;
  double lr() const override { return own_->lr(); }
  void set_lr(double lr) override { own_->set_lr(lr); }

  // Brings all ranks' state together on every rank: for a checkpoint and for those who compare,
  // not for training. Collective; throws CommError.
  void consolidate();
  // Of the state that this rank holds for itself.
  int64_t own_bytes() const;

 private:
  std::vector<bool> which_are_there() const;
  std::vector<at::Tensor> places_in(NamedTensors* whole, int64_t owner,
                                    const std::vector<bool>& there) const;
  Deadline deadline() const { return deadline_after(timeout_); }

  const NamedTensors parameters_;
  const std::vector<OptimizerShard> pieces_;
  const Spread spread_;
  Communicator& group_;
  const std::chrono::milliseconds timeout_;
  std::vector<size_t> own_pieces_;    // places in pieces_
  NamedTensors own_parameters_;       // of each: the parameter, or a view of its elements
  std::unique_ptr<Optimizer> own_;    // of these
  std::unique_ptr<Optimizer> whole_;  // holds what was brought together; never steps
  size_t words_ = 0;                  // of state for each parameter
  std::vector<bool> is_counter_;      // by word: one number for a whole parameter
};

// Bytes of all state that an optimizer holds.
int64_t state_bytes(const Optimizer& optimizer);

// Who updates what in one training, where no rank updates all of it.
struct Sharing {
  PiecewiseOptimizer* optimizer = nullptr;  // the training's; null: every rank updates all
  std::function<void()> gather_gradients;   // empty: all ranks have all averaged gradients

  // Gives every rank the whole optimizer state and all averaged gradients, for checkpoints and for
  // those who compare. Collective; throws CommError.
  void consolidate();
};

// Replaces the training's optimizer by one that is shared out as the scenario says, if it does.
// `training` and `group` must outlive the result.
Sharing partition_optimizer(const Scenario& scenario, const ReducerOptions& options,
                            Training* training, Communicator& group);

}  // namespace lockstep
