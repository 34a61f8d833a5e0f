#pragma once

#include <memory>
#include <vector>

#include "golden/compare.h"
#include "golden/golden_run.h"
#include "scenarios/workloads/workload.h"
#include "sim/plan/agreement.h"
#include "sim/worker/diagnose.h"
#include "sim/worker/gradient_checks.h"
#include "sim/worker/probe.h"
#include "sim/worker/rank_program.h"

namespace lockstep {

// Watches one pass (the primary one, or the double run) of one rank: after construction and after
// every step it hashes the state, compares it with the golden runs and with the other ranks, and
// records the outcome. At the first mismatch of a lane it writes evidence and tensors at once and
// compares that lane no more. Lanes run their must-fail control after step 1, on damaged copies.
class Observer {
 public:
  Observer(const RankContext& context, const Training& training, const RecordingProbe& probe,
           bool primary, Evidence* evidence);
  ~Observer();

  void before_backward();
  // Before the backward of the micro-batch that is synchronized, where the others were not.
  void before_last_backward();
  // Of a run that goes on from a file: its start step.
  void after_construction() { after_step(start_step_); }
  void after_step(int64_t step);
  // Of a step in which this rank had no batch; and, if it was the last of an epoch, when the rank
  // has the weights of the others.
  void after_shadow(int64_t step);
  void after_join(int64_t step) { observe(step); }

  // Around an exchange of the training's tensors for new ones of the same names and shapes.
  void forget_training();
  void know_training();

  // After the last step: the controls' outcome once more and, of the primary pass, the final hash
  // and the comparison with the stored golden.
  void finish();

 private:
  struct Feed;  // one golden run's stream

  void open_feeds();
  void open_feed(const std::string& golden, Lane lane);
  void observe(int64_t step);
  void pass_over(int64_t step);
  void record_hashes(const std::vector<uint64_t>& hashes, int64_t step);
  bool is_promised(StateKind kind, int64_t step) const;
  void record_collectives();
  bool meets(int64_t step) const;
  std::vector<int64_t> ranks_that_meet(int64_t step) const;
  void meet_replicas(int64_t step);
  bool is_first(int64_t step) const { return step == start_step_ + 1; }
  int64_t board_step(int64_t step) const;
  void compare(Feed& feed, int64_t step);
  void skip(Feed& feed, int64_t steps);
  void skip_item(Feed& feed, int64_t item);
  Agreement promised(const Feed& feed, int64_t step) const;
  const StateLayout& part_of(Agreement agreement) const;
  void compare_bits(Feed& feed, int64_t step, const std::byte* golden);
  void compare_with_one_device(int64_t step, const std::byte* golden);
  void compare_with_stored_golden();
  void compare_distance(Feed& feed, int64_t step, const std::byte* golden);
  void control(Feed& feed, const std::byte* golden, const StateLayout& part);
  bool sees_exchange(const std::byte* golden, const StateLayout& part) const;
  void control_replica(const std::vector<uint64_t>& hashes);
  void record_control(Lane lane, bool detected);
  void publish_rounding();
  void record_result();
  void mismatch(Lane lane, const MismatchContext& context, const BitDifference& difference);
  MismatchContext context(Lane lane, int64_t step, const std::byte* golden,
                          const StateLayout& layout) const;
  Deadline patience() const;

  const RankContext& context_;
  const Training& training_;
  const RecordingProbe& probe_;
  const bool primary_;
  const int64_t start_step_;
  Evidence* evidence_;
  const AgreementRule agreement_;
  StateLayout layout_;
  StateLayout parameters_;             // the part of layout_
  std::vector<std::byte> own_state_;   // where no board holds it
  std::byte* state_ = nullptr;         // this step's
  std::vector<std::byte> before_;      // the last step's, for lane rounding and evidence
  uint64_t chains_[4] = {0, 0, 0, 0};  // by StateKind
  int64_t replica_compared_ = 0;
  bool replicas_differ_ = false;
  std::unique_ptr<LocalGradients> local_;
  bool had_local_ = false;
  bool accumulation_noted_ = false;  // that some of it is lost
  std::shared_ptr<ReplicaBoard> board_;
  std::shared_ptr<StateStream> rounding_;
  std::vector<std::unique_ptr<Feed>> feeds_;
  std::vector<std::pair<Lane, bool>> controls_;
  std::vector<std::byte> last_one_device_;
};

}  // namespace lockstep
