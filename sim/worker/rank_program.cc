#include "sim/worker/rank_program.h"

#include <c10/util/Exception.h>

#include <exception>
#include <thread>

#include "scenarios/base/error.h"
#include "scenarios/checkpoint_file.h"
#include "sim/launch/protocol.h"
#include "sim/worker/diagnose.h"
#include "sim/worker/training_run.h"

namespace lockstep {
namespace {

// Kept for documentation (RFC 5737): no host has it.
constexpr const char* kNobodysAddress = "192.0.2.1";
// Others may wait in a collective that this rank has left out: they are to time out before it goes.
constexpr std::chrono::milliseconds kTeardownSlack{200};

std::unique_ptr<Communicator> join(const RankContext& around, RankFaults& faults) {
  faults.enter(Phase::rendezvous);
  const Scenario& scenario = around.plan.scenario;
  CommOptions options;
  options.rank = around.rank;
  options.world_size = ranks_of(scenario);
  options.algorithm = scenario.communicator.options.text("algorithm");
  options.prefix = "group";
  if (const Fault* fault = faults.standing(FaultKind::duplicate_rank))
    options.rank = fault->options.integer("as_rank");
  if (const Fault* fault = faults.standing(FaultKind::wrong_world_size))
    options.world_size = fault->options.integer("world_size");
  if (faults.standing(FaultKind::wrong_address) != nullptr) options.address = kNobodysAddress;
  return around.connect(options,
                        deadline_after(std::chrono::milliseconds(scenario.timeouts.rendezvous_ms)));
}

void run_passes(const RankContext& around, Communicator& communicator, RankFaults& faults,
                RecordingProbe& probe, Evidence* evidence) {
  Recorder& recorder = around.recorder;
  const RunPlan& plan = around.plan;
  TrainingRun(around, communicator, faults, probe, plan.scenario.dtype, true, evidence).run();
  recorder.append(EventKind::primary_done);
  if (!plan.double_run) return;
  recorder.append(EventKind::double_run);
  faults.begin_double_run();
  TrainingRun(around, communicator, faults, probe, "float64", false, evidence).run();
}

ErrorKind kind_of(CommFailure failure) {
  static constexpr ErrorKind kKinds[] = {ErrorKind::timeout, ErrorKind::peer_lost,
                                         ErrorKind::rejected, ErrorKind::closed};
  LOCKSTEP_CHECK(failure <= CommFailure::closed, "unknown CommFailure");
  return kKinds[static_cast<size_t>(failure)];
}

RankError error_of(const CommError& error) {
  const CommFacts& facts = error.facts();
  return {.kind = kind_of(error.kind()),
          .text = error.what(),
          .peer = facts.peer,
          .sequence = facts.sequence,
          .bucket = facts.bucket,
          .waited_ms = facts.waited_ms,
          .deadline_ms = facts.deadline_ms};
}

// Evidence lies in its file before anything else is waited for: this rank may be killed meanwhile.
void note_error(const RankContext& around, int32_t subject, RankError error, Evidence* evidence) {
  around.recorder.append(EventKind::error, subject, around.recorder.core_wait_ns());
  error.rank = around.rank;
  error.step = around.recorder.step();
  error.phase = to_word(around.recorder.phase());
  evidence->error = std::move(error);
  write_evidence(around.evidence_path, *evidence);
}

// LibTorch's messages go on with where in its source they were raised.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int guarded(const RankContext& around, Evidence* evidence) {
  RankFaults faults(around.plan.scenario, around.rank, around.recorder);
  std::unique_ptr<RankCommunicator> communicator;
  RecordingProbe probe(around.recorder);
  // After a failure nobody is waited for: peers learn of it at once from the closed connection.
  const auto close = [&](std::chrono::milliseconds patience) {
    if (communicator) communicator->outermost().close(deadline_after(patience));
  };
  const auto fail = [&](RankError error) {
    note_error(around, -1, std::move(error), evidence);
    close(std::chrono::milliseconds(0));
    return kExitException;
  };
  try {
    communicator = std::make_unique<RankCommunicator>(join(around, faults), around, faults, probe);
    run_passes(around, communicator->outermost(), faults, probe, evidence);
    faults.enter(Phase::teardown);
    close(std::chrono::milliseconds(around.plan.scenario.timeouts.collective_ms) + kTeardownSlack);
    around.recorder.append(EventKind::finished);
    return kExitDone;
  } catch (const CommError& error) {
    note_error(around, static_cast<int32_t>(error.kind()), error_of(error), evidence);
    if (error.kind() == CommFailure::peer_lost) std::this_thread::sleep_for(kKeptAfterALoss);
    close(std::chrono::milliseconds(0));
    return kExitCommError;
  } catch (const CheckpointError& error) {
    return fail({ErrorKind::checkpoint, error.what()});
  } catch (const c10::Error& error) {
    return fail({ErrorKind::exception, first_line(error.what_without_backtrace())});
  } catch (const std::exception& error) {
    return fail({ErrorKind::exception, error.what()});
  }
}

}  // namespace

RankEnd run_rank(const RankContext& around) {
  RankEnd end;
  around.recorder.measure_core_wait();
  end.exit_code = guarded(around, &end.evidence);
  write_evidence(around.evidence_path, end.evidence);
  return end;
}

}  // namespace lockstep
