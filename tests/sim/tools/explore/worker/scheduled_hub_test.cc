#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>

#include "sim/tools/explore/worker/scheduled_hub.h"

namespace lockstep {
namespace {

// Two ranks under one schedule.
class ScheduledHubTest : public testing::Test {
 protected:
  using Body = std::function<void(Communicator&)>;

  std::optional<ScheduleFailure> run(const Body& body, Script script = {}) {
    hub.clear();
    ScriptedChooser chooser(std::move(script));
    return scheduler.run(
        chooser, hub, [&](int64_t rank) { body(*make_scheduled_communicator(rank, 2, hub)); },
        true);
  }
  // Seeds until one fails.
  std::optional<ScheduleFailure> search(const Body& body) {
    SeededChooser chooser(4, 10, std::nullopt);
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      hub.clear();
      chooser.begin(seed);
      auto failure = scheduler.run(
          chooser, hub, [&](int64_t rank) { body(*make_scheduled_communicator(rank, 2, hub)); },
          false);
      if (failure) return failure;
    }
    return std::nullopt;
  }

  Scheduler scheduler{2, -1};
  ScheduledHub hub{2, SumOrder::ring, scheduler};
};

at::Tensor values(Communicator& communicator) {
  return at::full({3}, static_cast<double>(1 + communicator.rank()));
}

TEST_F(ScheduledHubTest, EveryOperationGivesWhatItMust) {
  const auto failure = search([](Communicator& communicator) {
    const bool first = communicator.rank() == 0;
    const at::Tensor sum = values(communicator);
    const CommWorkPtr under_way = communicator.all_reduce(sum, kNoDeadline);
    const at::Tensor shared = values(communicator);
    communicator.broadcast(shared, 1, kNoDeadline)->wait();
    EXPECT_EQ(shared[0].item<float>(), 2);
    const at::Tensor own = values(communicator), all = at::zeros({2, 3});
    communicator.all_gather(all, own, kNoDeadline)->wait();
    EXPECT_EQ(all[0][2].item<float>(), 1);
    EXPECT_EQ(all[1][2].item<float>(), 2);
    const at::Tensor part = at::zeros({1}), whole = at::arange(2, at::kFloat);
    communicator.reduce_scatter(part, whole, kNoDeadline)->wait();
    EXPECT_EQ(part.item<float>(), first ? 0 : 2);
    communicator.scatter(part, first ? whole : at::Tensor(), 0, kNoDeadline)->wait();
    EXPECT_EQ(part.item<float>(), first ? 0 : 1);
    communicator.gather(first ? whole : at::Tensor(), part, 0, kNoDeadline)->wait();
    communicator.barrier(kNoDeadline)->wait();
    under_way->wait();
    EXPECT_EQ(sum[1].item<float>(), 3);
  });
  EXPECT_FALSE(failure) << failure->what;
}

TEST_F(ScheduledHubTest, ABufferIsNanUntilItsCollectiveIsDone) {
  const auto failure = run([](Communicator& communicator) {
    const at::Tensor sum = values(communicator);
    const CommWorkPtr work = communicator.all_reduce(sum, kNoDeadline);
    EXPECT_TRUE(std::isnan(sum[0].item<float>()));
    work->wait();
    EXPECT_EQ(sum[0].item<float>(), 3);
  });
  EXPECT_FALSE(failure);
}

TEST_F(ScheduledHubTest, WhoWritesIntoABufferInFlightLosesAnUpdate) {
  const auto failure = search([](Communicator& communicator) {
    const at::Tensor sum = values(communicator);
    const CommWorkPtr work = communicator.all_reduce(sum, kNoDeadline);
    sum.zero_();
    work->wait();
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "lost_update");
  EXPECT_THAT(failure->what, testing::HasSubstr("all_reduce 1 (all_reduce of 3 float32)"));
}

TEST_F(ScheduledHubTest, WhoChangesWhatIsOnlyReadIsFoundToo) {
  const auto failure = search([](Communicator& communicator) {
    const at::Tensor own = values(communicator), all = at::zeros({2, 3});
    const CommWorkPtr work = communicator.all_gather(all, own, kNoDeadline);
    own.zero_();
    work->wait();
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "lost_update");
}

TEST_F(ScheduledHubTest, WhoFreesABufferInFlightIsFound) {
  const auto failure = search([](Communicator& communicator) {
    at::Tensor sum = values(communicator);
    const CommWorkPtr work = communicator.all_reduce(sum, kNoDeadline);
    sum = at::Tensor();
    work->wait();
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "released_in_flight");
}

TEST_F(ScheduledHubTest, ViewsKeepABuffer) {
  const auto failure = search([](Communicator& communicator) {
    at::Tensor sum = values(communicator);
    const CommWorkPtr work = communicator.all_reduce(sum, kNoDeadline);
    const at::Tensor view = sum.narrow(0, 1, 1);
    sum = at::Tensor();
    work->wait();
    EXPECT_EQ(view.item<float>(), 3);
  });
  EXPECT_FALSE(failure) << failure->what;
}

TEST_F(ScheduledHubTest, RanksThatCallDifferentCollectivesAreFound) {
  const auto failure = run([](Communicator& communicator) {
    const at::Tensor sum = at::zeros({2 + communicator.rank()});
    communicator.all_reduce(sum, kNoDeadline)->wait();
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "mismatched_collective");
  EXPECT_EQ(failure->what,
            "all_reduce 1: rank 1 calls all_reduce of 3 float32, rank 0 calls all_reduce of 2 "
            "float32");
}

TEST_F(ScheduledHubTest, ARankThatNobodyMeetsIsADeadlock) {
  const auto failure = run([](Communicator& communicator) {
    if (communicator.rank() == 0) communicator.barrier(kNoDeadline)->wait();
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "deadlock");
}

// Completions come to a rank in the order of its calls, but to ranks in any order.
TEST_F(ScheduledHubTest, CompletionsComeInTheOrderOfTheCalls) {
  const auto failure = search([](Communicator& communicator) {
    const at::Tensor a = values(communicator), b = values(communicator);
    const CommWorkPtr first = communicator.all_reduce(a, kNoDeadline);
    const CommWorkPtr second = communicator.all_reduce(b, kNoDeadline);
    second->wait();
    EXPECT_TRUE(first->is_done());
  });
  EXPECT_FALSE(failure);
}

}  // namespace

}  // namespace lockstep
