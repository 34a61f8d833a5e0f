#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>

#include "sim/fault/mutants.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

MutantSpec mutant(const std::string& kind, std::optional<int64_t> rank = {}) {
  MutantSpec made;
  made.kind = kind;
  made.rank = rank;
  return made;
}

// What rank 1 of three reads in a bucket right after its wait(), and what it recorded.
struct SeenCalls {
  at::Tensor bucket;
  size_t receipts = 0;
};

SeenCalls sum_with_calls(const MutantSpec& spec,
                         const std::function<at::Tensor(int64_t rank)>& addend,
                         bool in_backward = true) {
  SeenCalls seen;
  run_ranks({"local", "ring"}, 3, [&](int64_t rank, Communicator& real) {
    const std::string path = testing::TempDir() + "/call_mutants." + std::to_string(rank) + "." +
                             std::to_string(::getpid());
    auto recorder = Recorder::create(path, static_cast<int32_t>(rank), 3, 64);
    recorder->set_step(1);
    const auto calls = make_call_mutants(real, {spec}, *recorder);
    if (in_backward) calls->begin_backward();
    const at::Tensor bucket = addend(rank);
    const CommWorkPtr work = calls->all_reduce(bucket, soon());
    work->wait();
    const at::Tensor read = bucket.is_sparse() ? bucket.to_dense() : bucket.clone();
    calls->end_backward();
    real.barrier(soon())->wait();
    if (rank == 1) {
      seen.bucket = read;
      RankRecords records;
      std::string why;
      ASSERT_TRUE(read_records(path, &records, &why)) << why;
      for (const Event& event : records.events)
        seen.receipts += event.kind == static_cast<uint16_t>(EventKind::receipt);
    }
    ::unlink(path.c_str());
  });
  return seen;
}

at::Tensor ones(int64_t rank) { return at::full({4}, 1.0 + static_cast<double>(rank)); }

TEST(CallMutants, WithoutOneAllPassesThrough) {
  const SeenCalls seen = sum_with_calls(mutant("none"), ones);
  EXPECT_EQ(seen.bucket[0].item<float>(), 6);
  EXPECT_EQ(seen.receipts, 0);
}

TEST(CallMutants, ActOnSumsOfABackwardAlone) {
  const SeenCalls seen = sum_with_calls(mutant("reuse_buffer"), ones, /*in_backward=*/false);
  EXPECT_EQ(seen.bucket[0].item<float>(), 6);
  EXPECT_EQ(seen.receipts, 0);
}

TEST(CallMutants, OtherOrderRoundsOtherwise) {
  // Ring and last to first disagree on (1e8 + 1) - 1e8.
  const auto addend = [](int64_t rank) {
    return at::full({6}, rank == 0 ? 1.0 : rank == 1 ? 1e8 : -1e8);
  };
  const at::Tensor right = sum_with_calls(mutant("none"), addend).bucket;
  const SeenCalls seen = sum_with_calls(mutant("other_order"), addend);
  EXPECT_EQ(seen.receipts, 1);
  EXPECT_FALSE(at::equal(seen.bucket, right));
  EXPECT_EQ(seen.bucket[0].item<float>(), 1);  // -1e8 + 1e8 + 1
}

TEST(CallMutants, ReusedMemoryReachesAllRanks) {
  const SeenCalls seen = sum_with_calls(mutant("reuse_buffer", 2), ones);
  EXPECT_TRUE(std::isnan(seen.bucket[0].item<float>()));
  EXPECT_EQ(seen.receipts, 0);  // it is rank 2's
}

TEST(CallMutants, AHeldBucketIsCalledWhenItIsWaitedFor) {
  const SeenCalls seen = sum_with_calls(mutant("reorder_buckets", 1), ones);
  EXPECT_EQ(seen.bucket[0].item<float>(), 6);
  EXPECT_EQ(seen.receipts, 1);
}

TEST(CallMutants, EmptyRowsAddNothing) {
  const auto rows = [](int64_t rank) {
    return at::sparse_coo_tensor(at::full({1, 1}, rank, at::kLong), at::ones({1, 2}), {3, 2});
  };
  const at::Tensor sum = sum_with_calls(mutant("empty_sparse", 2), rows).bucket;
  EXPECT_EQ(sum[1][0].item<float>(), 1);
  EXPECT_EQ(sum[2][0].item<float>(), 0);
}

TEST(CallMutants, AForgottenUseIsNoUse) {
  const auto used = [](int64_t) { return at::ones({2}, at::kInt); };
  EXPECT_EQ(sum_with_calls(mutant("forget_used", 1), used).bucket[0].item<int>(), 2);
  EXPECT_EQ(sum_with_calls(mutant("forget_used"), ones).bucket[0].item<float>(), 6);
}

// Rank 0 comes late; rank 1 does not wait for it, and reads what it put in.
TEST(CallMutants, WhoDoesNotWaitReadsItsOwn) {
  run_ranks({"local", "ring"}, 3, [&](int64_t rank, Communicator& real) {
    const std::string path = testing::TempDir() + "/skip_wait." + std::to_string(rank) + "." +
                             std::to_string(::getpid());
    auto recorder = Recorder::create(path, static_cast<int32_t>(rank), 3, 64);
    const auto calls = make_call_mutants(real, {mutant("skip_wait", 1)}, *recorder);
    calls->begin_backward();
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const at::Tensor bucket = ones(rank);
    const CommWorkPtr work = calls->all_reduce(bucket, soon());
    work->wait();
    EXPECT_TRUE(work->is_done());
    EXPECT_EQ(bucket[0].item<float>(), rank == 1 ? 2 : 6);
    real.barrier(soon())->wait();
    EXPECT_EQ(bucket[0].item<float>(), 6);
    ::unlink(path.c_str());
  });
}

// What rank 1 of three has after rank 0 sent `values` in a phase, where it held zeros.
struct Received {
  at::Tensor values;
  size_t receipts = 0;
};

Received broadcast_in(Phase phase, const MutantSpec& spec, const at::Tensor& values) {
  Received received;
  run_ranks({"local", "ring"}, 3, [&](int64_t rank, Communicator& real) {
    const std::string path =
        testing::TempDir() + "/sent." + std::to_string(rank) + "." + std::to_string(::getpid());
    auto recorder = Recorder::create(path, static_cast<int32_t>(rank), 3, 64);
    recorder->set_step(2);
    recorder->enter(phase);
    const auto mutants = make_mutants(real, {spec}, *recorder);
    const at::Tensor held = rank == 0 ? values.clone() : at::zeros_like(values);
    mutants->broadcast(held, 0, soon())->wait();
    real.barrier(soon())->wait();
    if (rank == 1) {
      RankRecords records;
      std::string why;
      ASSERT_TRUE(read_records(path, &records, &why)) << why;
      received.values = held;
      for (const Event& event : records.events)
        received.receipts += event.kind == static_cast<uint16_t>(EventKind::receipt);
    }
    ::unlink(path.c_str());
  });
  return received;
}

TEST(Mutants, OwnReadyOrderKeepsTheOrderOfEveryRankButTheFirst) {
  const at::Tensor order = at::ones({4}, at::kLong);
  const Received right = broadcast_in(Phase::forward, mutant("none"), order);
  EXPECT_EQ(right.values.sum().item<int64_t>(), 4);
  EXPECT_EQ(right.receipts, 0);
  for (const std::optional<int64_t> of : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
    const Received kept = broadcast_in(Phase::forward, mutant("own_ready_order", of), order);
    EXPECT_EQ(kept.values.sum().item<int64_t>(), 0);
    EXPECT_EQ(kept.receipts, 1);
  }
}

TEST(Mutants, OwnReadyOrderLeavesAllElseAlone) {
  const at::Tensor order = at::ones({4}, at::kLong);
  const auto untouched = [](const Received& received) {
    EXPECT_EQ(received.values.sum().item<double>(), 4);
    EXPECT_EQ(received.receipts, 0);
  };
  untouched(broadcast_in(Phase::forward, mutant("own_ready_order", 2), order));
  untouched(broadcast_in(Phase::construction, mutant("own_ready_order"), order));
  untouched(broadcast_in(Phase::forward, mutant("own_ready_order"), at::ones({4})));
}

}  // namespace

}  // namespace lockstep
