#include <gmock/gmock.h>
#include <signal.h>
#include <nlohmann/json.hpp>

#include "scenarios/manifest.h"
#include "sim/judge/failure.h"
#include "tests/sim/judge/incident.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using StopPlace = Incident::Place;

constexpr int64_t kMillisecond = Incident::kMs;

Incident stopped_in(StopPlace place) {
  Incident incident(4, 2, place);
  incident.others_time_out();
  incident.ended(2, incident.run.failed_ns + 1000 * kMillisecond).state = Incident::stopped();
  return incident;
}

TEST(Explanation, WhoNeverEnteredWhat) {
  const Failure f = stopped_in(StopPlace::mid_bucket).failure();
  EXPECT_EQ(f.message,
            "rank 2 never entered all_reduce 5 (bucket 1, 1.0 MB): in backward of step 2 for "
            "2.0 s, stopped (state T); ranks 0 and 1 timed out after 2.0 s because of it");
  const Explanation& e = f.explanation;
  ASSERT_TRUE(e.collective);
  EXPECT_EQ(e.collective->operation, "all_reduce");
  EXPECT_EQ(e.collective->sequence, 5);
  EXPECT_EQ(e.collective->bucket, 1);
  EXPECT_EQ(e.collective->bytes, 1'000'000);
  EXPECT_THAT(e.missing, ElementsAre(2));
  EXPECT_THAT(e.entered, ElementsAre(0, 1, 3));
  EXPECT_THAT(e.waited, ElementsAre(0, 1));
  ASSERT_EQ(e.doing.size(), 1u);
  EXPECT_EQ(e.doing[0].phase, "backward");
  EXPECT_EQ(e.doing[0].step, 2);
  EXPECT_EQ(e.doing[0].state, "stopped (state T)");
  EXPECT_EQ(e.doing[0].last_event, "arrival of all_reduce 4 (bucket 0, 1.0 MB)");
}

TEST(Explanation, TheLayerIsTheManifests) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  incident.run.plan.scenario.model = {"linear", {}};
  incident.run.plan.scenario.model.options.set("in_features", int64_t{4});
  incident.run.plan.scenario.model.options.set("out_features", int64_t{4});
  incident.run.plan.scenario.model.options.set("bias", true);
  const auto manifest = manifest_of(incident.run.plan.scenario.model, "float32");
  ASSERT_TRUE(manifest);
  const std::string& name = manifest->parameters.at(1).name;
  EXPECT_EQ(incident.failure().explanation.doing[0].layer, name.substr(0, name.rfind('.')));
}

TEST(Explanation, ACollectiveThatAllEnteredAndNobodyEnded) {
  const Failure f = stopped_in(StopPlace::in_collective).failure();
  ASSERT_TRUE(f.explanation.collective);
  EXPECT_EQ(f.explanation.collective->sequence, 5);
  EXPECT_THAT(f.explanation.missing, IsEmpty());
  EXPECT_THAT(f.explanation.entered, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(f.message,
            "rank 2 did not come out of all_reduce 5 (bucket 1, 1.0 MB): in backward of step 2 for "
            "2.0 s, stopped (state T); ranks 0 and 1 timed out after 2.0 s because of it");
}

TEST(Explanation, BeforeTheFirstCollectiveThereIsNone) {
  const Failure f = stopped_in(StopPlace::rendezvous).failure();
  EXPECT_FALSE(f.explanation.collective);
  EXPECT_EQ(f.message,
            "rank 2 made no progress in rendezvous for 2.0 s, stopped (state T); its last event: "
            "begin of rendezvous; ranks 0 and 1 timed out after 2.0 s because of it");
}

TEST(Explanation, ADeadRankIsAskedByItsRecords) {
  Incident incident(3, 1, StopPlace::first_step);
  const int64_t at = incident.last_ns() + 40 * kMillisecond;
  incident.end(1, at).signal = SIGKILL;
  incident.others_lose_a_peer(at);
  const Failure f = incident.failure();
  EXPECT_EQ(f.message,
            "rank 1 was killed by SIGKILL (9) in forward of step 1; it never entered all_reduce 2 "
            "(bucket 0, 1.0 MB)");
  EXPECT_EQ(f.explanation.doing.at(0).state, "killed by SIGKILL (9)");
  EXPECT_EQ(f.explanation.doing.at(0).for_ms, (at - incident.silent_ns()) / kMillisecond);
  EXPECT_DOUBLE_EQ(f.detected_ms.value(), 1.0);
}

// What it did after the others had given up is no excuse, and no whereabouts.
TEST(Explanation, AsItStoodWhenTheRunHadFailed) {
  Incident incident(2, 1, StopPlace::first_step);
  incident.others_time_out();
  const int64_t silent = incident.silent_ns();
  Event late = Incident::event(EventKind::arrival, 1, 0, Phase::backward, 2);
  late.time_ns = incident.run.failed_ns + 10 * kMillisecond;
  incident.run.ranks[1].events.push_back(late);
  incident.give_up(1, ErrorKind::peer_lost, "all_reduce: connection closed",
                   late.time_ns + kMillisecond);
  const Failure f = incident.failure();
  EXPECT_EQ(f.rank, 1);
  EXPECT_EQ(f.kind, "hang");
  EXPECT_THAT(f.explanation.missing, ElementsAre(1));
  EXPECT_EQ(f.explanation.doing.at(0).for_ms, (incident.run.failed_ns - silent) / kMillisecond);
}

TEST(Explanation, NothingIsSaidWhereArrivalsWereDropped) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  std::erase_if(incident.run.ranks[1].events,
                [](const Event& e) { return e.kind == static_cast<uint16_t>(EventKind::arrival); });
  incident.run.ranks[1].dropped = 1000;
  EXPECT_FALSE(incident.failure().explanation.collective);
  EXPECT_EQ(incident.failure().rank, 2);
}

TEST(Explanation, WithinIsMeasuredFromTheFirstReceiptOfAFault) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  const double from_begin =
      static_cast<double>(incident.run.failed_ns - incident.run.began_ns) * 1e-6;
  EXPECT_DOUBLE_EQ(incident.failure().after_ms.value(), from_begin);
  Event receipt = Incident::event(EventKind::receipt, 2, 0, Phase::backward);
  receipt.time_ns = incident.silent_ns();
  incident.run.ranks[2].events.push_back(receipt);
  EXPECT_DOUBLE_EQ(incident.failure().after_ms.value(), from_begin);  // a mutant's
  incident.run.ranks[2].events.back().subject = kFirstFault;
  EXPECT_DOUBLE_EQ(incident.failure().after_ms.value(), incident.failure().detected_ms.value());
}

TEST(Explanation, IsJudgedAgainstWhatMustBeNamed) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  Expectation& expect = incident.run.plan.scenario.expect[0];
  expect.named_collective = 5;
  expect.named_bucket = 1;
  expect.named_phase = "backward";
  expect.within_ms = 2400;  // from the begin of the run
  EXPECT_THAT(judge_run(incident.run).unmet, IsEmpty());
  EXPECT_EQ(judge_run(incident.run).met, true);
  EXPECT_EQ(judge_run(incident.run).expected,
            "failed, collective 5, in bucket 1, in backward, within 2400 ms");
  expect.named_collective = 6;
  expect.named_bucket = 0;
  expect.named_phase = "forward";
  expect.within_ms = 2000;
  EXPECT_THAT(judge_run(incident.run).unmet,
              ElementsAre("named collective: expected 6, got 5", "named bucket: expected 0, got 1",
                          "named phase: expected forward, got backward", testing::_));
  EXPECT_EQ(judge_run(incident.run).met, false);
}

TEST(Explanation, AStackHasAtMostTwentyFrames) {
  Incident incident = stopped_in(StopPlace::mid_bucket);
  incident.run.ends.back().state = Incident::asleep("futex");
  incident.run.ends.back().state->stack.assign(64, "frame");
  EXPECT_EQ(incident.failure().stack.size(), 20u);
  EXPECT_EQ(as_json(judge_run(incident.run))["failure"]["stack"].size(), 20u);
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void end(Outcome* outcome, size_t rank, int64_t order, int exit_code, int signal,
         bool by_launcher = false, bool past_deadline = false) {
  ProcessEnd& end = outcome->run.ends[rank];
  end.order = order;
  end.exit_code = exit_code;
  end.signal = signal;
  end.by_launcher = by_launcher;
  end.past_deadline = past_deadline;
}

Failure failure_of(const Outcome& outcome) {
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.outcome, RunEnding::failed);
  EXPECT_EQ(result.verdict, Verdict::inconclusive);
  EXPECT_EQ(result.met, std::nullopt);
  EXPECT_TRUE(result.failure);
  return result.failure.value_or(Failure{});
}

TEST(Failure, AKilledRankIsNamedThoughOthersEndedFirst) {
  Outcome outcome;
  outcome.stop(2, 3);
  end(&outcome, 2, 1, -1, SIGKILL);
  end(&outcome, 0, 0, kExitCommError, 0);
  outcome.error(0, ErrorKind::peer_lost, "all_reduce 3: connection reset by peer");
  end(&outcome, 1, 2, kExitCommError, 0);
  outcome.error(1, ErrorKind::peer_lost, "all_reduce 3: connection reset by peer");
  end(&outcome, 3, 3, -1, SIGTERM, true);
  outcome.run.log_tails[2] = "first\nlast\n";
  const Failure f = failure_of(outcome);
  EXPECT_EQ(f.rank, 2);
  EXPECT_EQ(f.kind, "crash");
  EXPECT_EQ(f.signal, SIGKILL);
  EXPECT_EQ(f.exit_code, std::nullopt);
  EXPECT_EQ(f.phase, "backward");
  EXPECT_EQ(f.step, 3);
  EXPECT_EQ(f.message, "rank 2 was killed by SIGKILL (9) in backward of step 3");
  EXPECT_EQ(f.last_event, "arrival of all_reduce 3 (bucket 0, 400 bytes)");
  EXPECT_THAT(f.log_tail, ElementsAre("first", "last"));
  EXPECT_THAT(f.secondary, ElementsAre(0, 1));
}

TEST(Failure, AFileThatCannotBeLoadedIsItsOwnCause) {
  Outcome outcome;
  outcome.stop(1, 2);
  end(&outcome, 1, 0, kExitException, 0);
  Evidence evidence;
  evidence.error = {.kind = ErrorKind::checkpoint, .text = "there is no such file"};
  outcome.run.evidence[1] = to_json_text(evidence);
  EXPECT_EQ(failure_of(outcome).cause, "checkpoint");
  outcome.run.plan.scenario.expect[0].verdict = Verdict::inconclusive;
  outcome.run.plan.scenario.expect[0].cause = "checkpoint";
  EXPECT_EQ(outcome.judge().met, true);
  evidence.error = {.kind = ErrorKind::exception, .text = "checkpoint: of a user's own"};
  outcome.run.evidence[1] = to_json_text(evidence);
  EXPECT_EQ(outcome.judge().met, false);
  outcome.run.plan.scenario.expect = {{}};
  EXPECT_EQ(failure_of(outcome).cause, "");
}

// Gloo of 2023 and later cannot tell a stranger that guesses its number from a peer.
TEST(Failure, NobodyIsNamedWhereConnectionsAloneBrokeWhileRanksMet) {
  Incident incident(4, 1, StopPlace::rendezvous);
  incident.run.failed_ns = incident.last_ns() + 1'000'000;
  for (const int64_t rank : {1, 2}) {
    incident.give_up(rank, ErrorKind::peer_lost, "connecting 4 ranks over Gloo: connection closed",
                     incident.run.failed_ns, kExitCommError, 3 - rank);
    incident.run.ranks[static_cast<size_t>(rank)].events.back().phase =
        static_cast<uint16_t>(Phase::rendezvous);
  }
  for (const int64_t rank : {0, 3}) incident.ended(rank, incident.run.failed_ns + 1'000'000);
  const Failure nobody = incident.failure();
  EXPECT_EQ(nobody.rank, std::nullopt) << nobody.message;
  EXPECT_THAT(nobody.message, HasSubstr("nobody is blamed"));
  EXPECT_THAT(nobody.secondary, ElementsAre(1, 2));
  // One that died has its own cause.
  incident.run.ends.back().by_launcher = false;
  incident.run.ends.back().signal = SIGKILL;
  EXPECT_EQ(incident.failure().rank, 3);
}

TEST(Failure, NobodyIsNamedWhereSeveralWaitedForEachOtherWhileRanksMet) {
  Incident incident(4, 1, StopPlace::rendezvous);
  incident.run.failed_ns = incident.last_ns() + 1'000'000;
  for (const int64_t rank : {0, 1, 2, 3}) {
    const bool waited = rank < 2;
    incident.give_up(rank, waited ? ErrorKind::timeout : ErrorKind::peer_lost,
                     waited ? "no rank has set \"all\" in time" : "connection reset by peer",
                     incident.run.failed_ns, kExitCommError, -1);
    incident.run.ranks[static_cast<size_t>(rank)].events.back().phase =
        static_cast<uint16_t>(Phase::rendezvous);
  }
  const Failure nobody = incident.failure();
  EXPECT_EQ(nobody.rank, std::nullopt) << nobody.message;
  EXPECT_THAT(nobody.message, HasSubstr("waited for each other"));
}

TEST(Failure, ExitAndException) {
  Outcome outcome;
  outcome.stop(1, 2);
  end(&outcome, 1, 0, 7, 0);
  EXPECT_EQ(failure_of(outcome).kind, "exit");
  EXPECT_EQ(failure_of(outcome).message,
            "rank 1 exited with code 7 in backward of step 2; it never entered all_reduce 3 "
            "(bucket 0, 400 bytes)");
  end(&outcome, 1, 0, kExitException, 0);
  outcome.error(1, ErrorKind::exception, "no more memory");
  EXPECT_EQ(failure_of(outcome).kind, "exception");
  EXPECT_EQ(failure_of(outcome).message,
            "rank 1 ended by an exception in backward of step 2: no more memory; it never entered "
            "all_reduce 3 (bucket 0, 400 bytes)");
}

TEST(Failure, PastADeadlineTheRankThatCameLeastFarHangs) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) {
    outcome.stop(rank, rank == 1 ? 2 : 3);
    end(&outcome, rank, static_cast<int64_t>(rank), -1, SIGKILL, true, true);
  }
  const Failure f = failure_of(outcome);
  EXPECT_EQ(f.rank, 1);
  EXPECT_EQ(f.kind, "hang");
  EXPECT_EQ(f.message,
            "rank 1 never entered all_reduce 3 (bucket 0, 400 bytes): in backward of step 2");
}

// Rank 3 of 4 is a step behind, and the others time out.
Outcome laggard() {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) {
    outcome.stop(rank, rank == 3 ? 2 : 3);
    if (rank == 3) continue;
    end(&outcome, rank, static_cast<int64_t>(rank), kExitCommError, 0);
    outcome.error(rank, ErrorKind::timeout, "all_reduce 3: not done after 2000 ms");
  }
  end(&outcome, 3, 3, -1, SIGKILL, true);
  return outcome;
}

TEST(Failure, ALaggardThatOthersGaveUpOnHangs) {
  EXPECT_EQ(failure_of(laggard()).rank, 3);
  EXPECT_EQ(failure_of(laggard()).kind, "hang");
}

constexpr int64_t kNsPerMs = 1'000'000;

// Others gave up on rank 3 after 2 s, for `core_wait_ms` of which it was ready and had no core.
Outcome laggard(int64_t core_wait_ms) {
  Outcome outcome = laggard();
  outcome.run.plan.scenario.timeouts.collective_ms = 2000;
  outcome.run.plan.scenario.timeouts.construction_ms = 2000;
  ProcessState state;
  state.state = 'R';
  state.core_wait_ns = core_wait_ms * kNsPerMs;
  outcome.run.ends[3].state = state;
  outcome.run.failed_ns = 2000 * kNsPerMs;
  return outcome;
}

TEST(Failure, NobodyIsBlamedForWhatTheMachineDid) {
  EXPECT_EQ(failure_of(laggard(200)).rank, 3);
  EXPECT_EQ(failure_of(laggard(200)).kind, "hang");
  const Failure f = failure_of(laggard(1500));
  EXPECT_EQ(f.rank, std::nullopt);
  EXPECT_EQ(f.kind, "starved");
  EXPECT_EQ(f.core_wait_ms, 1500);
  EXPECT_THAT(f.secondary, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(f.message,
            "busy machine: nobody is blamed, because rank 3, which the others waited for, was "
            "ready to run without a core for 1.5 s in backward of step 2");
  EXPECT_EQ(laggard(200).judge().undecided, Undecided::inconclusive);
  EXPECT_EQ(laggard(1500).judge().undecided, Undecided::busy_machine);
}

// Nor for what kept the launcher and its zygote from starting a rank.
TEST(Failure, NobodyIsBlamedWhoWasNeverStarted) {
  for (const int64_t waited_ms : {400, 1500}) {
    Outcome outcome;
    for (size_t rank = 0; rank < 4; ++rank) {
      outcome.run.ranks[rank].events.clear();
      end(&outcome, rank, static_cast<int64_t>(rank), -1, SIGKILL, true);
      outcome.run.ends.back().past_deadline = true;
    }
    outcome.run.failed_ns = 2000 * kNsPerMs;
    outcome.run.core_wait_ns = waited_ms * kNsPerMs;
    EXPECT_EQ(failure_of(outcome).kind, waited_ms == 400 ? "hang" : "starved");
    EXPECT_EQ(failure_of(outcome).rank.has_value(), waited_ms == 400);
  }
}

TEST(Failure, OnABusyMachineNoExpectationOfAFailureIsUnmet) {
  for (const bool other_rank : {false, true}) {
    Outcome outcome = laggard(1500);
    Expectation& expect = outcome.run.plan.scenario.expect[0];
    expect = {};
    expect.outcome = RunEnding::failed;
    expect.primary_rank = other_rank ? 1 : 3;
    expect.kind = "crash";
    EXPECT_EQ(outcome.judge().met, std::nullopt);
    EXPECT_EQ(outcome.judge().undecided, Undecided::busy_machine);
    outcome.run.ends[3].state->core_wait_ns = 0;
    EXPECT_EQ(outcome.judge().met, false);
    EXPECT_EQ(outcome.judge().undecided, Undecided::decided);
  }
}

TEST(Failure, WhatCameLateForWantOfACoreIsUndecided) {
  Outcome outcome = laggard(0);
  Expectation& expect = outcome.run.plan.scenario.expect[0];
  expect = {};
  expect.outcome = RunEnding::failed;
  expect.primary_rank = 3;
  expect.within_ms = 1700;
  EXPECT_EQ(outcome.judge().met, false);
  outcome.run.core_wait_ns = 200 * kNsPerMs;
  EXPECT_EQ(outcome.judge().met, false) << "it came 300 ms too late";
  outcome.run.core_wait_ns = 300 * kNsPerMs;
  EXPECT_EQ(outcome.judge().met, std::nullopt);
  EXPECT_EQ(outcome.judge().undecided, Undecided::busy_machine);
  expect.primary_rank = 2;
  EXPECT_EQ(outcome.judge().met, false) << "that is not a matter of time";
}

// One that is continued while the other has given up, but has not yet said so.
TEST(Failure, WhoComesAfterTheTimeOutOfOthersIsTheOneTheyWaitedFor) {
  for (const int64_t late_ms : {500, 800}) {
    Outcome outcome(2);
    outcome.run.plan.scenario.timeouts.collective_ms = 600;
    outcome.stop(0, 3);
    outcome.stop(1, 3);
    for (Event& event : outcome.run.ranks[1].events)
      if (event.step == 3) event.time_ns = late_ms * kNsPerMs;
    end(&outcome, 0, 0, kExitCommError, 0);
    outcome.error(0, ErrorKind::timeout, "all_reduce 3: not done after 600 ms");
    end(&outcome, 1, 1, kExitCommError, 0);
    outcome.error(1, ErrorKind::peer_lost, "all_reduce 3: connection closed by peer");
    outcome.run.failed_ns = 820 * kNsPerMs;
    const Failure f = failure_of(outcome);
    if (late_ms < 600) {
      EXPECT_NE(f.kind, "hang");
    } else {
      EXPECT_EQ(f.rank, 1);
      EXPECT_EQ(f.kind, "hang");
    }
  }
}

// Stopped after it had entered the collective that the others gave up on.
TEST(Failure, ASilentRankInTheSameCollectiveHangs) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) {
    outcome.stop(rank, 3);
    if (rank == 1) continue;
    end(&outcome, rank, static_cast<int64_t>(rank), kExitCommError, 0);
    outcome.error(rank, rank == 0 ? ErrorKind::timeout : ErrorKind::peer_lost,
                  "all_reduce 3: no answer");
  }
  end(&outcome, 1, 3, -1, SIGKILL, true);
  EXPECT_EQ(failure_of(outcome).rank, 1);
  EXPECT_EQ(failure_of(outcome).kind, "hang");
  EXPECT_THAT(failure_of(outcome).secondary, ElementsAre(0, 2, 3));
}

TEST(Failure, TimeoutWhereNobodyLags) {
  Outcome outcome;
  outcome.stop(0, 3);
  end(&outcome, 0, 0, kExitCommError, 0);
  outcome.error(0, ErrorKind::timeout, "all_reduce 3: not done after 2000 ms");
  EXPECT_EQ(failure_of(outcome).kind, "timeout");
  EXPECT_EQ(failure_of(outcome).exit_code, kExitCommError);
}

// What a user's hook says is for people.
TEST(Failure, AnExceptionThatNamesAnotherRankAccusesNobody) {
  for (const char* text :
       {"no more memory", "rank 2 is bad", "step 1: rank 2: checkpoint: rank 3"}) {
    Outcome outcome;
    for (const size_t rank : {size_t{0}, size_t{1}}) {
      outcome.stop(rank, 2);
      end(&outcome, rank, static_cast<int64_t>(rank), kExitException, 0);
      outcome.error(rank, ErrorKind::exception, text);
    }
    const Failure f = failure_of(outcome);
    EXPECT_EQ(f.rank, 0) << text;
    EXPECT_EQ(f.kind, "exception") << text;
    EXPECT_EQ(f.cause, "") << text;
    EXPECT_THAT(f.message, HasSubstr(text));
  }
}

TEST(Failure, RejectedComesBeforePeersLost) {
  Outcome outcome;
  for (size_t rank : {0, 1}) {
    outcome.stop(rank, 1);
    end(&outcome, rank, static_cast<int64_t>(rank), kExitCommError, 0);
  }
  outcome.error(0, ErrorKind::peer_lost, "broadcast 2: connection closed");
  outcome.error(1, ErrorKind::rejected, "rank 1: fc1.weight is [4], rank 0 has [5]");
  EXPECT_EQ(failure_of(outcome).rank, 1);
  EXPECT_EQ(failure_of(outcome).kind, "rejected");
}

// On a busy machine a deadline passes while ranks are about to say why they end.
TEST(Failure, WhoRefusedWhenItsTimeWasUpDidNotHang) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) {
    outcome.stop(rank, 1);
    end(&outcome, rank, static_cast<int64_t>(rank), kExitCommError, 0, true, true);
    outcome.error(rank, ErrorKind::rejected, "manifest: rank 1 has [4], rank 0 has [5]");
  }
  EXPECT_EQ(failure_of(outcome).kind, "rejected");
  end(&outcome, 2, 2, -1, SIGKILL, true, true);
  EXPECT_EQ(failure_of(outcome).kind, "rejected");
  for (size_t rank = 0; rank < 4; ++rank) outcome.error(rank, ErrorKind::peer_lost, "closed");
  EXPECT_EQ(failure_of(outcome).kind, "hang");
}

// Of two sizes whoever has room for the smaller one refuses the larger: that may be an innocent.
TEST(Failure, WhoCalledSomethingElseIsNamedNotWhoRefusedIt) {
  Outcome outcome(3);
  const auto failed = [&] { return outcome.judge().failure.value_or(Failure{}); };
  const auto calls = [&](size_t rank, int64_t bytes) {
    auto& events = outcome.run.ranks[rank].events;
    std::erase_if(events, [](const Event& e) {
      return static_cast<EventKind>(e.kind) == EventKind::arrival && e.step == 1;
    });
    outcome.add(rank, EventKind::arrival, 1, 0, pack_collective(2, 6, bytes));
    events.back().sequence = 7;
  };
  for (size_t rank : {0, 1, 2}) {
    outcome.stop(rank, 1);
    end(&outcome, rank, static_cast<int64_t>(rank), kExitCommError, 0);
    calls(rank, rank == 2 ? 216 : 80);
    outcome.error(rank, rank == 1 ? ErrorKind::rejected : ErrorKind::peer_lost, "64 vs 20");
  }
  EXPECT_EQ(failed().rank, 2);
  EXPECT_EQ(failed().kind, "rejected");
  EXPECT_THAT(failed().message, HasSubstr("rank 2 called "));
  EXPECT_THAT(failed().message, HasSubstr("216 bytes) where most ranks called "));
  calls(0, 40);  // nothing tells which of the three is right
  EXPECT_EQ(failed().rank, 1);
  calls(0, 216);
  EXPECT_EQ(failed().rank, 1);
  EXPECT_THAT(failed().message, HasSubstr("rank 1 rejected what it was given"));
}

TEST(Failure, ThreadsAreKnownByTheirEvidence) {
  Outcome outcome;
  outcome.run.ends.clear();
  outcome.stop(2, 2);
  outcome.error(2, ErrorKind::exception, "out of cheese");
  EXPECT_EQ(failure_of(outcome).rank, 2);
  EXPECT_EQ(failure_of(outcome).kind, "exception");
}

TEST(Failure, AGoldenRunThatFailsIsNoRank) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank)
    end(&outcome, rank, static_cast<int64_t>(rank) + 1, -1, SIGTERM, true);
  outcome.run.ends.push_back({"golden-replay", -1, 0, 0, 11, 0, false, false});
  outcome.run.golden_problem = "golden-replay exited with code 11: no more memory";
  for (size_t rank = 0; rank < 4; ++rank) outcome.stop(rank, 2);
  const Failure f = failure_of(outcome);
  EXPECT_EQ(f.rank, std::nullopt);
  EXPECT_EQ(f.message, "golden-replay exited with code 11: no more memory");
}

TEST(Failure, BeforeTheFirstRecord) {
  Outcome outcome;
  outcome.run.ranks[0].events.clear();
  end(&outcome, 0, 0, -1, SIGSEGV);
  EXPECT_EQ(failure_of(outcome).message,
            "rank 0 crashed with SIGSEGV (11) before its first record; it never entered "
            "all_reduce 1 (bucket 0, 400 bytes)");
}

TEST(Failure, NobodyIsNamedWhereNoRankCouldBegin) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) {
    outcome.run.ranks[rank].events.clear();
    end(&outcome, rank, static_cast<int64_t>(rank), 127, 0);  // a library that cannot be loaded
  }
  end(&outcome, 3, 3, -1, SIGTERM, true);
  Failure nobody = failure_of(outcome);
  EXPECT_EQ(nobody.rank, std::nullopt) << nobody.message;
  EXPECT_EQ(nobody.message.substr(0, 57),
            "nobody is blamed: no rank could begin, and all that ended");
  EXPECT_THAT(nobody.secondary, ElementsAre(0, 1, 2));
  // Another end than that of the others is a cause of its own.
  end(&outcome, 1, -1, -1, SIGSEGV);
  EXPECT_EQ(failure_of(outcome).rank, 1);
  // One alone may be the one.
  for (const size_t rank : {0, 2}) end(&outcome, rank, 2, -1, SIGTERM, true);
  EXPECT_EQ(failure_of(outcome).rank, 1);
}

TEST(Failure, ARunThatBrokeDownDoesNotPassThoughAllLanesDo) {
  Outcome outcome;
  end(&outcome, 3, 3, -1, SIGSEGV);  // after its last record
  const RunResult result = outcome.judge();
  for (const LaneResult& lane : result.lanes) EXPECT_EQ(lane.verdict, LaneVerdict::pass);
  EXPECT_EQ(failure_of(outcome).rank, 3);
  outcome.run.ends[3] = {"golden-replay", -1, 3, 0, 11, 0, false, false};
  outcome.run.golden_problem = "golden-replay ended with exit code 11";
  EXPECT_EQ(failure_of(outcome).message, "golden-replay ended with exit code 11");
}

TEST(Failure, AFailedLaneStillFailsARunThatBrokeDown) {
  Outcome outcome;
  outcome.mismatch(0, Lane::replay, gradient_evidence(Lane::replay, 1));
  outcome.stop(1, 2);
  end(&outcome, 1, 0, -1, SIGKILL);
  EXPECT_EQ(outcome.judge().verdict, Verdict::fail);
  EXPECT_EQ(outcome.judge().met, false);
}

TEST(Failure, AnInterruptedRunIsInconclusiveWithoutAFailure) {
  Outcome outcome;
  for (size_t rank = 0; rank < 4; ++rank) {
    outcome.stop(rank, 2);
    end(&outcome, rank, static_cast<int64_t>(rank), -1, SIGTERM, true);
  }
  outcome.run.interrupted = true;
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.verdict, Verdict::inconclusive);
  EXPECT_FALSE(result.failure);
  EXPECT_THAT(result.lanes[0].reason, HasSubstr("interrupted"));
}

}  // namespace

}  // namespace lockstep
