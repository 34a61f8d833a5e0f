#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "reducer/comm/pending_work.h"
#include "reducer/manifest.h"
#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Recording, NumbersCollectivesAndBuckets) {
  TestProbe probe;
  const CommOptions options;
  auto recording = make_recording(make_local_communicator(options, make_local_hub(1)), probe);
  const at::Tensor tensor = at::zeros({3}, at::kDouble);
  recording->broadcast(tensor, 0, soon())->wait();
  recording->all_reduce(tensor, soon())->wait();
  recording->begin_backward();
  recording->all_reduce(tensor, soon())->wait();
  recording->broadcast(tensor, 0, soon())->wait();
  recording->all_reduce(tensor, soon())->wait();
  recording->end_backward();
  recording->all_reduce(tensor, soon())->wait();
  recording->begin_backward();
  recording->all_reduce(tensor, soon())->wait();

  std::vector<int64_t> buckets;
  for (size_t i = 0; i < probe.arrivals.size(); ++i) {
    EXPECT_EQ(probe.arrivals[i].sequence, i + 1);
    EXPECT_EQ(probe.arrivals[i].bytes, 24);
    EXPECT_EQ(probe.arrivals[i].dtype, static_cast<uint8_t>(at::kDouble));
    buckets.push_back(probe.arrivals[i].bucket);
  }
  EXPECT_THAT(buckets, ElementsAre(-1, -1, 0, -1, 1, -1, 0));
  EXPECT_EQ(probe.ends.size(), 7U);
}

TEST(Recording, AFailedCollectiveHasNoEnd) {
  TestProbe probe;
  CommOptions options;
  options.world_size = 2;
  auto recording = make_recording(make_local_communicator(options, make_local_hub(2)), probe);
  const auto work = recording->barrier(deadline_after(std::chrono::milliseconds(20)));
  EXPECT_THROW(work->wait(), CommError);
  EXPECT_EQ(probe.arrivals.size(), 1U);
  EXPECT_TRUE(probe.ends.empty());
}

TEST(Recording, AnErrorSaysWhichCollectiveItWas) {
  TestProbe probe;
  CommOptions options;
  options.world_size = 2;
  auto recording = make_recording(make_local_communicator(options, make_local_hub(2)), probe);
  const at::Tensor tensor = at::zeros({3});
  recording->begin_backward();
  std::vector<CommFacts> all(4);  // of each collective as it was thrown, and as its callback got it
  std::vector<CommWorkPtr> works;
  std::atomic<int> called = 0;
  for (size_t i = 0; i < 2; ++i) {
    works.push_back(recording->all_reduce(tensor, deadline_after(std::chrono::milliseconds(30))));
    works.back()->on_done([&, i](const std::exception_ptr& error) {
      all[2 + i] = facts_of(error);
      ++called;
    });
  }
  for (size_t i = 0; i < 2; ++i) {
    try {
      works[i]->wait();
      ADD_FAILURE();
    } catch (const CommError& error) {
      all[i] = error.facts();
    }
  }
  while (called < 2) std::this_thread::yield();
  try {
    recording->barrier(kNoDeadline);
    ADD_FAILURE();
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommFailure::closed);
    EXPECT_EQ(error.facts().sequence, 3);
    EXPECT_EQ(error.facts().bucket, -1);
    EXPECT_EQ(error.facts().deadline_ms, -1);
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all[i].sequence, static_cast<int64_t>(i % 2 + 1));
    EXPECT_EQ(all[i].bucket, static_cast<int64_t>(i % 2));
    EXPECT_GE(all[i].deadline_ms, 0);
    EXPECT_LE(all[i].deadline_ms, 30);
    EXPECT_GE(all[i].waited_ms, all[i].deadline_ms);
  }
  EXPECT_EQ(all[0].peer, 1);  // who never came
}

class LateBackend : public CommWork {
 public:
  bool is_done() const override { return work_.is_done(); }
  void wait() override { work_.wait(); }
  void on_done(std::function<void(std::exception_ptr)> callback) override {
    work_.on_done(std::move(callback));
  }
  PendingWork work_{"all_reduce", Clock::now() - PendingWork::kGrace};
};

// A backend that answers after a rank has given up has answered nobody.
TEST(PendingWork, WhatComesAfterTheTimeOutCountsNoMore) {
  LateBackend late;
  bool well = false;
  late.on_done([&](const std::exception_ptr& error) { well = error == nullptr; });
  EXPECT_FALSE(late.work_.ends_by(Clock::now()));
  EXPECT_THROW(late.wait(), CommError);
  late.work_.complete();
  EXPECT_FALSE(well);
  EXPECT_THROW(late.wait(), CommError);
  EXPECT_TRUE(late.work_.ends_by(Clock::now()));
}

TEST(Manifest, NamesRankTensorAndDifference) {
  const std::vector<std::pair<std::function<void(SmallModel&)>, std::string>> cases{
      {[](SmallModel& m) { m.parameters[1].tensor = at::zeros({9}, at::kDouble); },
       "rank 1 has parameter fc1.bias Double [9]"},
      {[](SmallModel& m) {
         m.parameters[2].tensor = at::zeros({3, 27}, at::kFloat);
       },
       "rank 1 has parameter fc2.weight Float [3, 27]"},
      {[](SmallModel& m) { m.parameters[5].tensor.requires_grad_(false); },
       "rank 0 has parameter fc3.bias Float [3] stride [1] requires_grad"},
      {[](SmallModel& m) { m.buffers.clear(); },
       "rank 1 has nothing in its place, rank 0 has buffer count"},
      {[](SmallModel& m) {
         m.buffers.push_back({"more", at::zeros({1})});
       },
       "rank 1 has buffer more Float [1] stride [1], rank 0 has nothing in its place"},
  };
  for (const auto& [change, expected] : cases) {
    std::vector<std::exception_ptr> errors;
    run_ranks(
        {"local", "ring"}, 3,
        [&](int64_t rank, Communicator& communicator) {
          SmallModel model(static_cast<uint64_t>(rank));
          check_manifest(model.parameters, model.buffers, communicator, soon());
          if (rank == 1) change(model);
          check_manifest(model.parameters, model.buffers, communicator, soon());
        },
        &errors);
    for (size_t rank = 0; rank < errors.size(); ++rank) {
      const std::string kind = rank == 1 ? "rejected" : "peer_lost";
      EXPECT_THAT(text_of(errors[rank]), testing::StartsWith(kind + ": manifest: rank 1 has "));
      EXPECT_THAT(text_of(errors[rank]), HasSubstr(expected));
      EXPECT_EQ(facts_of(errors[rank]).peer, 1);
    }
  }
}

TEST(Manifest, TheRankThatIsNotLikeMostIsWrongEvenIfItIsRankZero) {
  for (const int64_t ranks : {2, 3, 7}) {
    std::vector<std::exception_ptr> errors;
    run_ranks(
        {"local", "ring"}, ranks,
        [&](int64_t rank, Communicator& communicator) {
          SmallModel model(7);
          if (rank == 0) model.buffers.clear();
          check_manifest(model.parameters, model.buffers, communicator, soon());
        },
        &errors);
    const std::string wrong = ranks == 2 ? "rank 1 has buffer" : "rank 0 has nothing";
    for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr(wrong)) << ranks;
  }
}

TEST(Manifest, ComparesValues) {
  run_ranks({"local", "ring"}, 3, [](int64_t rank, Communicator& communicator) {
    SmallModel model(7);
    EXPECT_EQ(differing_values(model.parameters, model.buffers, communicator, soon()), "");
    c10::NoGradGuard no_grad;
    if (rank == 2) model.parameters[3].tensor.add_(1e-6);
    EXPECT_EQ(differing_values(model.parameters, model.buffers, communicator, soon()),
              "rank 2: fc2.bias differs from rank 0's");
  });
}

}  // namespace
}  // namespace lockstep
