#include "sim/worker/rank_communicator.h"

#include "reducer/device/staged.h"
#include "scenarios/base/hash.h"
#include "sim/explore/chooser.h"
#include "sim/fault/reducer_mutants.h"
#include "sim/worker/host_views.h"

namespace lockstep {
namespace {

// Gloo by itself knows the host's memory alone; ProcessGroupGloo has a staging of its own.
bool is_staged(const Scenario& scenario) {
  return scenario.streams == "late" ||
         (scenario.device == "cuda" && scenario.communicator.kind == "gloo");
}

StagingWaits staging_waits(const std::vector<MutantSpec>& mutants, int64_t rank) {
  StagingWaits waits;
  waits.for_gradients = !has_mutant(mutants, "skip_gradient_wait", rank);
  waits.for_copies = !has_mutant(mutants, "skip_copy_wait", rank);
  waits.for_results = !has_mutant(mutants, "skip_result_wait", rank);
  return waits;
}

}  // namespace

RankCommunicator::RankCommunicator(std::unique_ptr<Communicator> real, const RankContext& context,
                                   RankFaults& faults, Probe& probe)
    : recorder_(context.recorder) {
  const Scenario& scenario = context.plan.scenario;
  if (is_staged(scenario))
    real = make_staged(std::move(real), staging_waits(scenario.mutants, context.rank));
  else if (scenario.device == "stand_in")
    real = with_host_views(std::move(real));
  auto network = make_faulty_network(std::move(real), faults, context.recorder,
                                     context.own_link ? context.own_link() : nullptr);
  faulty_network_ = network.get();
  auto mutants = make_mutants(std::move(network), scenario.mutants, context.recorder);
  mutants_ = mutants.get();
  recording_ = make_recording(std::move(mutants), probe);
  call_mutants_ = make_call_mutants(*recording_, scenario.mutants, context.recorder);
  faulty_buckets_ = make_faulty_buckets(*call_mutants_, faults);
  if (!has_mutant(scenario.mutants, "unordered_launch", context.rank)) return;
  const auto rank = static_cast<uint64_t>(context.rank);
  pool_ = make_race_mutants(*faulty_buckets_, scenario.mutants,
                            [draws = ScheduleDraws(substream_seed(scenario.seed, "pool", rank))](
                                size_t count) mutable { return draws.below(count); });
}

void RankCommunicator::begin_backward() {
  recording_->begin_backward();
  mutants_->begin_backward();
  faulty_network_->begin_backward();
  call_mutants_->begin_backward();
  faulty_buckets_->begin_backward();
  if (pool_ != nullptr) pool_->begin_backward(recorder_.step());
}

void RankCommunicator::end_backward() {
  if (pool_ != nullptr) pool_->end_backward();
  recording_->end_backward();
  mutants_->end_backward();
  faulty_network_->end_backward();
  call_mutants_->end_backward();
  faulty_buckets_->end_backward();
}

}  // namespace lockstep
