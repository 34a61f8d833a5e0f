#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "reducer/communicator.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

class Failing : public testing::TestWithParam<Backend> {};

TEST_P(Failing, AMissingRankTimesTheOthersOut) {
  std::vector<std::exception_ptr> errors;
  run_ranks(
      GetParam(), 3,
      [](int64_t rank, Communicator& communicator) {
        at::Tensor tensor = at::zeros({4}, at::kFloat);
        communicator.all_reduce(tensor, soon())->wait();
        if (rank == 2) std::this_thread::sleep_for(milliseconds(400));
        const auto start = Clock::now();
        try {
          communicator.all_reduce(tensor, deadline_after(milliseconds(100)))->wait();
        } catch (const CommError&) {
          if (rank != 2) {
            EXPECT_LT(Clock::now() - start, milliseconds(500));
          }
          EXPECT_THROW(communicator.barrier(soon()), CommError);
          throw;
        }
      },
      &errors);
  EXPECT_THAT(text_of(errors[0]), AnyOf(StartsWith("timeout: all_reduce of 4 float32: "),
                                        StartsWith("peer_lost: all_reduce of 4 float32: ")));
  EXPECT_THAT(text_of(errors[2]), AnyOf(StartsWith("timeout: "), StartsWith("peer_lost: ")));
  EXPECT_TRUE(text_of(errors[0]).starts_with("timeout") ||
              text_of(errors[1]).starts_with("timeout"))
      << text_of(errors[0]) << "\n"
      << text_of(errors[1]);
}

TEST_P(Failing, OnDoneHearsOfTheDeadlineWithoutAnyoneWaiting) {
  run_ranks(GetParam(), 2, [](int64_t rank, Communicator& communicator) {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(400));
      return;
    }
    at::Tensor tensor = at::zeros({4}, at::kFloat);
    std::atomic<bool> failed{false};
    const auto work = communicator.all_reduce(tensor, deadline_after(milliseconds(100)));
    work->on_done([&](const std::exception_ptr& error) { failed = error != nullptr; });
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_TRUE(failed);
    EXPECT_TRUE(work->is_done());
  });
}

TEST_P(Failing, ARankThatGoesWithoutClosingIsNoticed) {
  std::vector<std::exception_ptr> errors;
  const auto start = Clock::now();
  run_ranks(
      GetParam(), 3,
      [](int64_t rank, Communicator& communicator) {
        at::Tensor tensor = at::zeros({4}, at::kFloat);
        communicator.all_reduce(tensor, soon())->wait();
        if (rank == 1) throw std::runtime_error("rank 1 fails");
        communicator.all_reduce(tensor, soon())->wait();
      },
      &errors);
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
  EXPECT_EQ(text_of(errors[1]), "exception: rank 1 fails");
  EXPECT_THAT(text_of(errors[0]), StartsWith("peer_lost: all_reduce of 4 float32: "));
  EXPECT_THAT(text_of(errors[2]), StartsWith("peer_lost: all_reduce of 4 float32: "));
  // Whoever noticed it first says whose connection it was.
  if (GetParam().kind == "gloo") {
    EXPECT_THAT(text_of(errors[0]) + text_of(errors[2]), HasSubstr("(rank 1)"));
    EXPECT_THAT((std::vector{facts_of(errors[0]).peer, facts_of(errors[2]).peer}),
                testing::Contains(1));
  }
  if (GetParam().kind == "shm") {
    EXPECT_THAT(text_of(errors[0]), HasSubstr("rank 1 left the group"));
    EXPECT_EQ(facts_of(errors[0]).peer, 1);
  }
}

TEST_P(Failing, AfterCloseCallsAreRefused) {
  run_ranks(GetParam(), 2, [](int64_t, Communicator& communicator) {
    communicator.barrier(soon())->wait();
    communicator.close(soon());
    try {
      communicator.barrier(soon());
      FAIL();
    } catch (const CommError& error) {
      EXPECT_EQ(error.kind(), CommFailure::closed);
    }
  });
}

// As a rank does whose backward throws: its probe is gone when the others come.
TEST(LocalCommunicator, NothingOfARankIsCalledOnceItHasLeft) {
  std::atomic<bool> left = false, called_later = false;
  run_ranks({"local", "ring"}, 2, [&](int64_t rank, Communicator& communicator) {
    at::Tensor tensor = at::ones({4}, at::kFloat);
    if (rank == 0) {
      communicator.all_reduce(tensor, soon())->on_done([&](const std::exception_ptr& error) {
        if (left) called_later = true;
        EXPECT_THAT(text_of(error), StartsWith("closed: all_reduce of 4 float32"));
      });
      communicator.close(soon());
      left = true;
    } else {
      while (!left) std::this_thread::yield();
      communicator.all_reduce(tensor, soon())->wait();  // the other's part has been there
      EXPECT_EQ(tensor[0].item<float>(), 2);
    }
  });
  EXPECT_FALSE(called_later);
}

INSTANTIATE_TEST_SUITE_P(All, Failing,
                         testing::Values(Backend{"local", "ring"}, Backend{"gloo", "ring"},
                                         Backend{"gloo", "halving_doubling"},
                                         Backend{"gloo", "ring_chunked"}, Backend{"c10d", "ring"},
                                         Backend{"shm", "ring"}),
                         [](const auto& test) { return test.param.kind + test.param.algorithm; });

TEST(Connecting, GivesUpAtTheDeadline) {
  for (const std::string kind : {"gloo", "c10d", "shm"}) {
    auto store = std::make_shared<MemoryStore>();
    const Deadline deadline = deadline_after(milliseconds(200));
    const CommOptions options{0, 2, "ring", "127.0.0.1", ""};
    try {
      if (kind == "gloo") make_gloo_communicator(options, store, deadline);
      if (kind == "c10d") make_c10d_communicator(options, store, deadline);
      if (kind == "shm") make_shm_communicator(options, store, deadline);
      FAIL();
    } catch (const CommError& error) {
      EXPECT_EQ(error.kind(), CommFailure::timeout) << error.what();
    }
    EXPECT_LT(Clock::now(), deadline + milliseconds(2000));
  }
}

TEST(LocalCommunicator, RejectsCallsThatDoNotAgree) {
  std::vector<std::exception_ptr> errors;
  run_ranks(
      {"local", "ring"}, 3,
      [](int64_t rank, Communicator& communicator) {
        const at::Tensor tensor = at::zeros({4}, rank == 2 ? at::kInt : at::kFloat);
        communicator.all_reduce(tensor, soon())->wait();
      },
      &errors);
  for (const auto& error : errors) {
    EXPECT_THAT(text_of(error), StartsWith("rejected: "));
    EXPECT_THAT(text_of(error), HasSubstr("rank 2 calls all_reduce of 4 int32"));
    EXPECT_THAT(text_of(error), HasSubstr("rank 0 calls all_reduce of 4 float32"));
    EXPECT_EQ(facts_of(error).peer, 2);
  }
}

TEST(LocalCommunicator, TheRankThatIsNotLikeMostIsWrongEvenIfItIsRankZero) {
  for (const int64_t ranks : {2, 3, 6, 7}) {
    std::vector<std::exception_ptr> errors;
    run_ranks(
        {"local", "ring"}, ranks,
        [](int64_t rank, Communicator& communicator) {
          const at::Tensor tensor = at::zeros({4}, rank == 0 ? at::kInt : at::kFloat);
          communicator.all_reduce(tensor, soon())->wait();
        },
        &errors);
    for (const auto& error : errors) EXPECT_EQ(facts_of(error).peer, ranks == 2 ? -1 : 0) << ranks;
  }
}

TEST(LocalCommunicator, NamesTheMissingRank) {
  std::vector<std::exception_ptr> errors;
  run_ranks(
      {"local", "ring"}, 3,
      [](int64_t rank, Communicator& communicator) {
        if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
        if (rank != 1) communicator.barrier(deadline_after(milliseconds(50)))->wait();
      },
      &errors);
  EXPECT_EQ(text_of(errors[0]), "timeout: barrier: timed out waiting for rank 1");
  EXPECT_EQ(text_of(errors[2]), "timeout: barrier: timed out waiting for rank 1");
}

}  // namespace
}  // namespace lockstep
