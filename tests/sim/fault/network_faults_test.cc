#include "sim/fault/network_faults.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/reducer/test_group.h"
#include "tests/scenarios/fault_of.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// A communicator that the test group closes.
struct KeptOpen : CommDecorator {
  using CommDecorator::CommDecorator;
  CommWorkPtr submit(CollectiveCall call, int64_t) override { return forward(inner(), call); }
  void close(Deadline) noexcept override {}
};

// The sum of 1 + rank over three ranks, twice, as rank 1 sees it behind its fault; how long it took
// and what it recorded.
struct Seen {
  double sum = 0;
  int64_t took_ns = 0;
  std::string error;
  int64_t close_took_ns = 0;
  std::vector<Event> events;
};

Seen sum_with(const Fault& part, milliseconds timeout = milliseconds(5000)) {
  Scenario scenario;
  scenario.world_size = 3;
  scenario.steps = 1;
  scenario.faults = {part};
  Seen seen;
  const std::string path =
      testing::TempDir() + "/network_faults.records." + std::to_string(::getpid());
  std::vector<std::exception_ptr> errors;
  run_ranks(
      {"gloo", "ring"}, 3,
      [&](int64_t rank, Communicator& real) {
        auto recorder =
            Recorder::create(path + std::to_string(rank), static_cast<int32_t>(rank), 3, 4096);
        recorder->set_step(1);
        RankFaults faults(scenario, rank, *recorder);
        KeptOpen open(real);
        auto network = make_faulty_network(open, faults, *recorder, nullptr);
        auto faulty = make_faulty_buckets(*network, faults);
        const int64_t begin = now_ns();
        faulty->begin_backward();
        const at::Tensor a = at::full({1000}, 1.0 + static_cast<double>(rank)), b = a.clone();
        std::string error;
        try {
          const auto first = faulty->all_reduce(a, deadline_after(timeout));
          const auto second = faulty->all_reduce(b, deadline_after(timeout));
          first->wait();
          second->wait();
        } catch (const CommError& e) {
          error = to_word(e.kind());
        }
        faulty->end_backward();
        const int64_t took = now_ns() - begin;
        const int64_t closing = now_ns();
        faulty->close(error.empty() ? soon() : Clock::now());
        if (rank != 1) return;
        seen.close_took_ns = now_ns() - closing;
        seen.sum = a[0].item<double>() + b[0].item<double>();
        seen.took_ns = took;
        seen.error = error;
        RankRecords records;
        std::string why;
        ASSERT_TRUE(read_records(path + "1", &records, &why)) << why;
        seen.events = records.events;
      },
      &errors);
  for (int rank = 0; rank < 3; ++rank) ::unlink((path + std::to_string(rank)).c_str());
  return seen;
}

int64_t count(const Seen& seen, EventKind kind) {
  return std::count_if(seen.events.begin(), seen.events.end(), [&](const Event& event) {
    return static_cast<EventKind>(event.kind) == kind;
  });
}

TEST(NetworkFaults, ASlowLinkTakesItsTimeAndChangesNoValue) {
  // 2 x 4/3 x 4,000 bytes at 0.1 MB/s.
  const Seen seen =
      sum_with(fault_of(FaultKind::slow_link, {{"rank", int64_t{1}}, {"bandwidth_mb_per_s", 0.1}}));
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.sum, 12);
  EXPECT_GE(seen.took_ns, 106'000'000);
  EXPECT_LT(seen.took_ns, 1'000'000'000);
  EXPECT_EQ(count(seen, EventKind::receipt), 2);
  EXPECT_EQ(count(seen, EventKind::launched), 2);
}

TEST(NetworkFaults, LatencyOfAnotherRankIsWaitedFor) {
  const Seen seen =
      sum_with(fault_of(FaultKind::latency, {{"rank", int64_t{0}}, {"duration_ms", 30.0}}));
  EXPECT_EQ(seen.sum, 12);
  EXPECT_GE(seen.took_ns, 30'000'000);
  EXPECT_EQ(count(seen, EventKind::receipt), 0) << "it is not this rank's";
  EXPECT_EQ(count(seen, EventKind::launched), 2);
}

// The rank waits as long as it said, and what was on its way goes nowhere afterwards.
TEST(NetworkFaults, ALatencyBeyondTheTimeOutTimesOut) {
  for (const FaultKind kind : {FaultKind::latency, FaultKind::jitter}) {
    const Seen seen = sum_with(fault_of(kind, {{"rank", int64_t{1}}, {"duration_ms", 20'000.0}}),
                               milliseconds(200));
    EXPECT_EQ(seen.error, "timeout");
    EXPECT_GE(seen.took_ns, 199'000'000);
    EXPECT_LT(seen.took_ns, 1'500'000'000);
    EXPECT_LT(seen.close_took_ns, 1'000'000'000);
    EXPECT_EQ(count(seen, EventKind::launched), 0);
  }
}

TEST(NetworkFaults, WhatIsLostTimesOut) {
  const Seen seen =
      sum_with(fault_of(FaultKind::half_open, {{"rank", int64_t{1}}}), milliseconds(200));
  EXPECT_EQ(seen.error, "timeout");
  EXPECT_EQ(count(seen, EventKind::launched), 0);
  EXPECT_EQ(count(seen, EventKind::receipt), 1);
  EXPECT_EQ(sum_with(fault_of(FaultKind::partition, {{"ranks", std::vector<int64_t>{0}}}),
                     milliseconds(200))
                .error,
            "timeout");
}

TEST(NetworkFaults, ASkippedCollectiveKeepsWhatIsThere) {
  const Seen seen =
      sum_with(fault_of(FaultKind::skip_collective, {{"rank", int64_t{1}}, {"bucket", int64_t{1}}}),
               milliseconds(300));
  EXPECT_EQ(seen.sum, 6 + 2);
  EXPECT_EQ(count(seen, EventKind::receipt), 1);
}

}  // namespace
}  // namespace lockstep
