// Who failed, and how, for every way to fail of every rank in every place of runs of 2 to 7 ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/sim/judge/incident.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

using Place = Incident::Place;

constexpr int64_t kMs = Incident::kMs;

class Attribution : public testing::TestWithParam<int64_t> {
 protected:
  static void expect_no_text_moves_it(const Incident& incident, const Failure& f,
                                      const std::string& at) {
    for (int64_t scapegoat = 0; scapegoat < GetParam(); ++scapegoat) {
      const Failure other = incident.failure_with_other_texts(scapegoat);
      EXPECT_EQ(other.rank, f.rank) << at << ", texts accuse rank " << scapegoat;
      EXPECT_EQ(other.kind, f.kind) << at << ", texts accuse rank " << scapegoat;
      EXPECT_EQ(other.cause, f.cause) << at << ", texts accuse rank " << scapegoat;
      EXPECT_EQ(other.secondary, f.secondary) << at << ", texts accuse rank " << scapegoat;
    }
  }

  template <class Make>
  void everywhere(const std::string& kind, Make make) {
    for (const Place place : Incident::kPlaces)
      for (int64_t guilty = 0; guilty < GetParam(); ++guilty) {
        Incident incident(GetParam(), guilty, place);
        make(&incident, guilty);
        const Failure f = incident.failure();
        const std::string at =
            fmt::format("rank {} of {}, place {}", guilty, GetParam(), static_cast<int>(place));
        EXPECT_EQ(f.rank, guilty) << at << ": " << f.message;
        EXPECT_EQ(f.kind, kind) << at << ": " << f.message;
        EXPECT_THAT(f.secondary, testing::Not(testing::Contains(guilty))) << at;
        expect_no_text_moves_it(incident, f, at);
      }
  }
};
INSTANTIATE_TEST_SUITE_P(WorldSizes, Attribution, testing::Values(2, 3, 4, 6, 7),
                         [](const auto& size) { return "W" + std::to_string(size.param); });

TEST_P(Attribution, Stopped) {
  everywhere("hang", [](Incident* incident, int64_t guilty) {
    incident->others_time_out();
    incident->ended(guilty, incident->run.failed_ns + 1000 * kMs).state = Incident::stopped();
  });
}

TEST_P(Attribution, Asleep) {
  everywhere("hang", [](Incident* incident, int64_t guilty) {
    incident->others_time_out();
    incident->ended(guilty, incident->run.failed_ns + 600 * kMs).state =
        Incident::asleep("clock_nanosleep");
  });
}

// It learns from a closed connection that the others have given up on it.
TEST_P(Attribution, TooLate) {
  everywhere("hang", [](Incident* incident, int64_t guilty) {
    const bool inside =
        incident->run.ranks[guilty].events.back().kind == static_cast<uint16_t>(EventKind::arrival);
    incident->others_time_out();
    if (inside) {  // it has come in time
      incident->ended(guilty, incident->run.failed_ns).state = Incident::asleep("futex");
      return;
    }
    Event late = Incident::event(EventKind::arrival, 1, 0, Phase::backward, 99);
    late.time_ns = incident->run.failed_ns + 100 * kMs;
    incident->run.ranks[guilty].events.push_back(late);
    incident->give_up(guilty, ErrorKind::peer_lost, "all_reduce: connection closed by peer",
                      incident->run.failed_ns + 101 * kMs);
  });
}

// In rendezvous all wait for the run's launcher to lose patience; those that say so are asking the
// store for somebody's address.
TEST_P(Attribution, TheRendezvousDeadlinePassesForAll) {
  for (int64_t guilty = 0; guilty < GetParam(); ++guilty) {
    Incident incident(GetParam(), guilty, Place::rendezvous);
    incident.run.failed_ns = incident.last_ns() + 5000 * kMs;
    for (int64_t rank = 0; rank < GetParam(); ++rank) {
      ProcessEnd& end = incident.ended(rank, incident.run.failed_ns + 10 * kMs);
      end.past_deadline = true;
      end.state = Incident::asleep("poll");
      if (rank != guilty) end.state->store_key = "address/" + std::to_string(guilty);
    }
    const Failure f = incident.failure();
    EXPECT_EQ(f.rank, guilty) << f.message;
    EXPECT_EQ(f.kind, "hang");
    EXPECT_EQ(f.phase, "rendezvous");
    EXPECT_EQ(f.secondary.size(), static_cast<size_t>(GetParam()) - 1);
  }
}

TEST_P(Attribution, Killed) {
  everywhere("crash", [](Incident* incident, int64_t guilty) {
    const int64_t at = incident->last_ns() + 3 * kMs;
    incident->end(guilty, at).signal = SIGKILL;
    incident->others_lose_a_peer(at);
  });
}

TEST_P(Attribution, Exited) {
  for (const int code : {0, 7})
    everywhere("exit", [&](Incident* incident, int64_t guilty) {
      const int64_t at = incident->last_ns() + 3 * kMs;
      incident->end(guilty, at).exit_code = code;
      incident->others_lose_a_peer(at);
    });
}

TEST_P(Attribution, ThrewInAHook) {
  everywhere("exception", [](Incident* incident, int64_t guilty) {
    const int64_t at = incident->last_ns() + 3 * kMs;
    incident->give_up(guilty, ErrorKind::exception, "thrown in a hook", at, kExitException);
    incident->others_lose_a_peer(at);
  });
}

// One batch fewer: it ends, all well, while the others wait for it; or is about to.
TEST_P(Attribution, LeftEarly) {
  for (const bool ended_by_launcher : {false, true})
    for (int64_t guilty = 0; guilty < GetParam(); ++guilty) {
      Incident incident(GetParam(), guilty, Place::last_step);
      auto& events = incident.run.ranks[guilty].events;
      events.resize(events.size() - 2);  // nothing of the last step
      for (const EventKind kind : {EventKind::primary_done, EventKind::finished}) {
        if (ended_by_launcher && kind == EventKind::finished) continue;
        events.push_back(Incident::event(kind, 2, -1, Phase::teardown));
        events.back().time_ns = incident.silent_ns() + kMs;
      }
      incident.others_time_out();
      if (ended_by_launcher)
        incident.ended(guilty, incident.run.failed_ns + 500 * kMs);
      else
        incident.end(guilty, incident.silent_ns()).exit_code = kExitDone;
      const Failure f = incident.failure();
      EXPECT_EQ(f.rank, guilty) << f.message;
      EXPECT_EQ(f.kind, "exit") << f.message;
    }
}

// Nobody died: the rank whose connections were closed is whom most of the others name.
TEST_P(Attribution, TheMostAccusedLostItsConnection) {
  if (GetParam() < 4) return;  // two neighbours accuse it, and nobody else may have as many
  for (int64_t guilty = 0; guilty < GetParam(); ++guilty) {
    Incident incident(GetParam(), guilty, Place::in_collective);
    const int64_t at = incident.last_ns();
    for (int64_t i = 1; i <= GetParam(); ++i) {  // a ring: the guilty one is the last to say so
      const int64_t rank = (guilty + i) % GetParam();
      const int64_t named = i == GetParam() - 1 ? guilty : (rank + GetParam() - 1) % GetParam();
      incident.give_up(rank, rank == guilty ? ErrorKind::closed : ErrorKind::peer_lost,
                       "all_reduce 5: connection closed", at + i * kMs, kExitCommError, named);
    }
    incident.run.failed_ns = at + 3 * kMs;
    EXPECT_EQ(incident.failure().rank, guilty) << incident.failure().message;
    expect_no_text_moves_it(incident, incident.failure(), "the most accused");
  }
}

// In a ring everybody names the next. What the guilty one and the one before it say comes first;
// the others notice only when those have closed their own connections.
TEST_P(Attribution, WhoClosedAfterALossIsNotToBlame) {
  const int64_t ranks = GetParam();
  if (ranks < 3) return;  // of two ranks each names the other
  const int64_t kept = std::chrono::nanoseconds(kKeptAfterALoss).count();
  for (int64_t guilty = 0; guilty < ranks; ++guilty) {
    Incident incident(ranks, guilty, Place::in_collective);
    const int64_t at = incident.last_ns();
    const auto loses = [&](int64_t rank, int64_t when_ns) {
      incident.give_up(rank, ErrorKind::peer_lost, "all_reduce 5: closed by peer", at + when_ns,
                       kExitCommError, (rank + 1) % ranks);
    };
    loses((guilty + ranks - 1) % ranks, kMs / 2);
    loses(guilty, kMs);
    for (int64_t i = 2; i < ranks; ++i) loses((guilty + ranks - i) % ranks, i * (kept + kMs));
    incident.run.failed_ns = at + ranks * (kept + kMs);
    EXPECT_EQ(incident.failure().rank, guilty) << incident.failure().message;
    expect_no_text_moves_it(incident, incident.failure(), "closed after a loss");
  }
}

// All are in the collective, and its time is over for all of them.
class TooShort : public Incident {
 public:
  TooShort(int64_t ranks, int64_t last, int64_t apart_ms)
      : Incident(ranks, last, Place::in_collective) {
    const int64_t entered = last_ns();
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (Event& event : run.ranks[rank].events)
        if (static_cast<EventKind>(event.kind) == EventKind::arrival && event.sequence == 5)
          event.time_ns = entered + (rank == last ? apart_ms * kMs : 0);
    for (int64_t i = 0; i < ranks; ++i) {
      const int64_t rank = (last + 1 + i) % ranks;  // whoever came last gives up last
      const int64_t gave_up = entered + (kTimeoutMs + (rank == last ? apart_ms : 0)) * kMs + i;
      if (run.failed_ns == 0) run.failed_ns = gave_up + 5 * kMs;
      give_up(rank, ErrorKind::timeout, "all_reduce: timed out", gave_up);
    }
  }
};

TEST_P(Attribution, ATimeOutThatIsTooShortIsNobodysFault) {
  for (int64_t last = 0; last < GetParam(); ++last) {
    const TooShort incident(GetParam(), last, 3);
    const Failure f = incident.failure();
    EXPECT_EQ(f.rank, std::nullopt) << f.message;
    EXPECT_EQ(f.kind, "timeout");
    EXPECT_EQ(f.message,
              "the time-out of 2.0 s is too short, or the network lost what was sent: all ranks "
              "entered all_reduce 5 (bucket 1, 1.0 MB) within 3 ms");
    EXPECT_EQ(f.secondary.size(), static_cast<size_t>(GetParam()));
    EXPECT_EQ(f.explanation.collective->sequence, 5);
    EXPECT_THAT(f.explanation.missing, testing::IsEmpty());
    expect_no_text_moves_it(incident, f, "too short");
  }
}

// Ended by the launcher before its own time was over, which the others' was.
TEST_P(Attribution, WhoHadLessTimeThanTheOthersDoesNotHang) {
  for (int64_t last = 0; last < GetParam(); ++last) {
    TooShort incident(GetParam(), last, 300);
    incident.run.ranks[last].events.pop_back();
    incident.run.evidence[last].clear();
    incident.run.ends.pop_back();
    incident.ended(last, incident.run.failed_ns + 200 * kMs).state = Incident::asleep("futex");
    EXPECT_EQ(incident.failure().rank, std::nullopt) << incident.failure().message;
  }
}

// It went on with its backward beside the collective, and lost the peer that had given up.
TEST_P(Attribution, WhoIsStillAtWorkWhenTheOthersGiveUpDoesNotHang) {
  for (int64_t last = 0; last < GetParam(); ++last)
    for (const bool ended_by_launcher : {false, true}) {
      TooShort incident(GetParam(), last, 3);
      auto& events = incident.run.ranks[last].events;
      events.pop_back();
      for (const int64_t around : {-20, 20}) {
        Event ready = Incident::event(EventKind::parameter_ready, 2, 0, Phase::backward);
        ready.time_ns = incident.run.failed_ns + around * kMs;
        events.push_back(ready);
      }
      incident.run.evidence[last].clear();
      incident.run.ends.pop_back();
      const int64_t at = incident.run.failed_ns + 100 * kMs;
      if (ended_by_launcher)
        incident.ended(last, at).state = Incident::asleep("futex");
      else
        incident.give_up(last, ErrorKind::peer_lost, "all_reduce: connection closed", at);
      EXPECT_EQ(incident.failure().rank, std::nullopt) << incident.failure().message;
    }
}

TEST_P(Attribution, WhoLeftTheOthersTooLittleTimeIsNamed) {
  for (int64_t last = 0; last < GetParam(); ++last) {
    TooShort incident(GetParam(), last, 1'900);
    const Failure f = incident.failure();
    EXPECT_EQ(f.rank, last) << f.message;
    EXPECT_EQ(f.kind, "timeout");
    EXPECT_THAT(f.message,
                testing::StartsWith(fmt::format(
                    "rank {} entered all_reduce 5 (bucket 1, 1.0 MB) 1.9 s after the first "
                    "rank, of the 2.0 s that its time-out allows",
                    last)));
  }
}

// Its launcher went with it: how it ended, and where it was, nobody knows.
TEST_P(Attribution, WhoseRecordsAreLostIsNamedWithoutAPlace) {
  for (const Place place : Incident::kPlaces)
    for (int64_t guilty = 0; guilty < GetParam(); ++guilty) {
      Incident incident(GetParam(), guilty, place);
      const int64_t at = incident.last_ns() + 3 * kMs;
      incident.run.ranks[guilty].events.clear();
      incident.end(guilty, at).lost = true;
      incident.others_lose_a_peer(at);
      const Failure f = incident.failure();
      EXPECT_EQ(f.rank, guilty) << f.message;
      EXPECT_EQ(f.kind, "lost");
      EXPECT_EQ(f.signal, std::nullopt);
      EXPECT_EQ(f.exit_code, std::nullopt);
      EXPECT_EQ(f.phase, "");
      EXPECT_EQ(f.message,
                fmt::format("rank {}: its process is gone, its records are lost", guilty));
      EXPECT_THAT(f.explanation.missing, testing::Not(testing::Contains(guilty)));
      EXPECT_THAT(f.explanation.entered, testing::Not(testing::Contains(guilty)));
      expect_no_text_moves_it(incident, f, "lost");
    }
}

TEST_P(Attribution, TheEarlierOfTwoKills) {
  const int64_t first = GetParam() - 1, second = 0;
  Incident incident(GetParam(), first, Place::mid_bucket);
  const int64_t at = incident.last_ns();
  incident.end(first, at).signal = SIGSEGV;
  incident.end(second, at + kMs).signal = SIGKILL;
  incident.run.failed_ns = at + 2 * kMs;
  const Failure f = incident.failure();
  EXPECT_EQ(f.rank, first);
  EXPECT_EQ(f.signal, SIGSEGV);
  EXPECT_THAT(f.secondary, testing::ElementsAre(second));
}

TEST_P(Attribution, ARankThatWasStoppedAndContinuedHasNotFailed) {
  Incident incident(GetParam(), 0, Place::mid_bucket);
  const Incident whole(GetParam() + 1, 0, Place::mid_bucket);
  for (RankRecords& records : incident.run.ranks) {
    for (Event e : {Incident::event(EventKind::primary_done, 3, -1, Phase::optimizer),
                    Incident::event(EventKind::finished, 3, -1, Phase::teardown)}) {
      e.time_ns = incident.last_ns() + kMs;
      records.events.push_back(e);
    }
    incident.end(records.rank, incident.last_ns()).exit_code = kExitDone;
  }
  EXPECT_EQ(judge_run(incident.run).failure, std::nullopt);
  EXPECT_EQ(judge_run(incident.run).outcome, RunEnding::completed);
}

// Receipts say what a fault did: whoever looks at them needs no other evidence.
TEST_P(Attribution, ReceiptsChangeNothing) {
  for (const Place place : Incident::kPlaces) {
    Incident incident(GetParam(), GetParam() - 1, place);
    incident.others_time_out();
    incident.ended(GetParam() - 1, incident.run.failed_ns + kMs).state = Incident::asleep("futex");
    const Failure before = incident.failure();
    for (RankRecords& records : incident.run.ranks) {
      Event receipt =
          Incident::event(EventKind::receipt, 3, kFirstFault + records.rank, Phase::optimizer);
      receipt.time_ns = incident.run.failed_ns - kMs * (1 + records.rank);
      records.events.push_back(receipt);
    }
    EXPECT_EQ(incident.failure().message, before.message);
    EXPECT_EQ(incident.failure().last_event, before.last_event);
    EXPECT_EQ(incident.failure().rank, before.rank);
    EXPECT_EQ(incident.failure().detected_ms, before.detected_ms);
  }
}

// It ends, all well, in the middle of the others' work: a step fewer, or a collective.
TEST(AttributionOfARun, ARankThatEndedEarlyIsWhomTheOthersWaitedFor) {
  for (const bool step_left_out : {true, false}) {
    Outcome outcome;
    outcome.stop(0, 3);
    outcome.error(0, ErrorKind::timeout, "all_reduce: timed out");
    outcome.run.ends[0].exit_code = kExitCommError;
    outcome.remove(2, [&](const Event& e) {
      const auto kind = static_cast<EventKind>(e.kind);
      const bool done = kind == EventKind::primary_done || kind == EventKind::finished;
      const bool collective = kind == EventKind::arrival || kind == EventKind::end;
      return e.step == 3 && (step_left_out ? !done : collective);
    });
    const RunResult result = outcome.judge();
    ASSERT_TRUE(result.failure);
    EXPECT_EQ(result.failure->rank, 2);
    EXPECT_EQ(result.failure->kind, "exit");
    const char* said =
        step_left_out ? "rank 2 ended after step 2, " : "rank 2 ended after step 3, ";
    EXPECT_EQ(result.failure->message.substr(0, 27), said);
    EXPECT_EQ(result.failure->secondary, std::vector<int64_t>{0});
  }
}

}  // namespace
}  // namespace lockstep
