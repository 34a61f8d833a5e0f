#include "sim/worker/rank_program.h"

#include <c10/util/Exception.h>

#include <exception>
#include <thread>

#include "sim/launch/protocol.h"
#include "sim/worker/dump.h"
#include "sim/worker/pass.h"

namespace lockstep {
namespace {

// Kept for documentation (RFC 5737): no host has it.
constexpr const char* kNobodysAddress = "192.0.2.1";
// Others may wait in a collective that this rank has left out: they are to time out before it goes.
constexpr std::chrono::milliseconds kTeardownSlack{200};

std::unique_ptr<Communicator> join(const RankSurroundings& around, RankFaults& faults) {
  faults.enter(Phase::rendezvous);
  const Scenario& scenario = around.plan.scenario;
  CommOptions options;
  options.rank = around.rank;
  options.world_size = ranks_of(scenario);
  options.algorithm = scenario.communicator.options.text("algorithm");
  options.prefix = "group";
  if (const Part* fault = faults.standing("duplicate_rank"))
    options.rank = fault->options.integer("as_rank");
  if (const Part* fault = faults.standing("wrong_world_size"))
    options.world_size = fault->options.integer("world_size");
  if (faults.standing("wrong_address") != nullptr) options.address = kNobodysAddress;
  return around.connect(options,
                        deadline_after(std::chrono::milliseconds(scenario.timeouts.rendezvous_ms)));
}

void run_passes(const RankSurroundings& around, RankCommunicator& communicator, RankFaults& faults,
                RecordingProbe& probe, Evidence* evidence) {
  Recorder& recorder = around.recorder;
  const RunPlan& plan = around.plan;
  Pass(around, communicator, faults, probe, plan.scenario.dtype, true, evidence).run();
  recorder.append(EventKind::primary_done);
  if (!plan.double_run) return;
  recorder.append(EventKind::double_run);
  faults.begin_double_run();
  Pass(around, communicator, faults, probe, "float64", false, evidence).run();
}

void note_error(const RankSurroundings& around, int32_t subject, const std::string& kind,
                const std::string& message, Evidence* evidence) {
  around.recorder.append(EventKind::error, subject);
  evidence->error_kind = kind;
  evidence->error = message;
  evidence->phase = to_word(around.recorder.phase());
}

// LibTorch's messages go on with where in its source they were raised.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int guarded(const RankSurroundings& around, Evidence* evidence) {
  RankFaults faults(around.plan.scenario, around.rank, around.recorder);
  std::unique_ptr<RankCommunicator> communicator;
  RecordingProbe probe(around.recorder);
  // After a failure nobody is waited for: peers learn of it at once from the closed connection.
  const auto close = [&](std::chrono::milliseconds patience) {
    if (communicator) communicator->outermost().close(deadline_after(patience));
  };
  try {
    communicator = std::make_unique<RankCommunicator>(join(around, faults), around, faults, probe);
    run_passes(around, *communicator, faults, probe, evidence);
    faults.enter(Phase::teardown);
    close(std::chrono::milliseconds(around.plan.scenario.timeouts.collective_ms) + kTeardownSlack);
    around.recorder.append(EventKind::finished);
    return kExitDone;
  } catch (const CommError& error) {
    note_error(around, static_cast<int32_t>(error.kind()), to_word(error.kind()), error.what(),
               evidence);
    if (error.kind() == CommFailure::peer_lost) std::this_thread::sleep_for(kKeptAfterALoss);
    close(std::chrono::milliseconds(0));
    return kExitCommError;
  } catch (const c10::Error& error) {
    note_error(around, -1, "exception", first_line(error.what_without_backtrace()), evidence);
    close(std::chrono::milliseconds(0));
    return kExitException;
  } catch (const std::exception& error) {
    note_error(around, -1, "exception", error.what(), evidence);
    close(std::chrono::milliseconds(0));
    return kExitException;
  }
}

}  // namespace

RankEnd run_rank(const RankSurroundings& around) {
  RankEnd end;
  end.exit_code = guarded(around, &end.evidence);
  write_evidence(around.evidence_path, end.evidence);
  return end;
}

}  // namespace lockstep
