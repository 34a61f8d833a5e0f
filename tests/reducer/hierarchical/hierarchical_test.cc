#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reducer/hierarchical/hierarchical.h"
#include "tests/reducer/hierarchical/host_ranks.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

void expect_none(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
}

// Every collective of the seam, with exact numbers, for every root.
void use_everything(int64_t rank, int64_t ranks, Communicator& group) {
  const at::Tensor own = at::full({5}, static_cast<float>(rank + 1));
  const at::Tensor all = at::arange(ranks * 5, at::kFloat);
  const auto part = [&](int64_t r) { return all.narrow(0, r * 5, 5); };
  const float total = static_cast<float>(ranks * (ranks + 1)) / 2;

  at::Tensor sum = own.clone();
  group.all_reduce(sum, soon())->wait();
  EXPECT_TRUE(sum.equal(at::full({5}, total)));

  at::Tensor scattered_sum = at::zeros({5});
  group.reduce_scatter(scattered_sum, all.mul(static_cast<float>(rank + 1)), soon())->wait();
  EXPECT_TRUE(scattered_sum.equal(part(rank).mul(total)));

  at::Tensor gathered = at::zeros({ranks, 5});
  group.all_gather(gathered, part(rank).clone(), soon())->wait();
  EXPECT_TRUE(gathered.view({-1}).equal(all));

  for (int64_t root = 0; root < ranks; ++root) {
    at::Tensor told = rank == root ? all.clone() : at::zeros({ranks * 5});
    group.broadcast(told, root, soon())->wait();
    EXPECT_TRUE(told.equal(all)) << root;

    at::Tensor mine = at::zeros({5});
    group.scatter(mine, rank == root ? all.clone() : at::Tensor(), root, soon())->wait();
    EXPECT_TRUE(mine.equal(part(rank))) << root;

    at::Tensor brought = rank == root ? at::zeros({ranks * 5}) : at::Tensor();
    group.gather(brought, part(rank).clone(), root, soon())->wait();
    if (rank == root) {
      EXPECT_TRUE(brought.equal(all)) << root;
    }
  }
  group.barrier(soon())->wait();
}

TEST(Hierarchical, HasEveryCollective) {
  for (const HostShape shape : kHostShapes)
    expect_none(
        run_hosts("ring", shape.ranks, shape.per_host, [&](int64_t rank, Communicator& group) {
          EXPECT_EQ(group.rank(), rank);
          EXPECT_EQ(group.world_size(), shape.ranks);
          use_everything(rank, shape.ranks, group);
        }));
}

// Rank r has row r and a row that all have.
TEST(Hierarchical, SparseSumsAreInOrderOfRank) {
  for (const HostShape shape : kHostShapes)
    expect_none(
        run_hosts("ring", shape.ranks, shape.per_host, [&](int64_t rank, Communicator& group) {
          at::Tensor indices = at::full({1, 2}, rank, at::kLong);
          indices[0][1].fill_(7);
          const at::Tensor values = at::full({2, 3}, static_cast<float>(rank + 1));
          const at::Tensor tensor = at::sparse_coo_tensor(indices, values, {8, 3});
          group.all_reduce(tensor, soon())->wait();
          const at::Tensor dense = tensor.to_dense();
          for (int64_t r = 0; r < std::min<int64_t>(7, shape.ranks); ++r)
            EXPECT_TRUE(dense[r].equal(at::full({3}, static_cast<float>(r + 1))));
          EXPECT_TRUE(dense[7].equal(
              at::full({3}, static_cast<float>(shape.ranks * (shape.ranks + 1)) / 2)));
        }));
}

// Each rank goes once, be it a leader or not: the others of its host and those of the other one
// learn of it long before a deadline.
TEST(Hierarchical, ARankThatGoesIsNoticedOnEveryHost) {
  for (int64_t gone = 0; gone < 4; ++gone) {
    const auto start = Clock::now();
    const auto errors = run_hosts("ring", 4, 2, [&](int64_t rank, Communicator& group) {
      at::Tensor tensor = at::zeros({4});
      group.all_reduce(tensor, soon())->wait();
      if (rank == gone) throw std::runtime_error("goes");
      group.all_reduce(tensor, soon())->wait();
    });
    EXPECT_LT(Clock::now() - start, milliseconds(8000));
    for (int64_t rank = 0; rank < 4; ++rank) {
      const std::string text = text_of(errors[static_cast<size_t>(rank)]);
      if (rank == gone) {
        EXPECT_EQ(text, "exception: goes");
      } else {
        EXPECT_THAT(text, StartsWith("peer_lost: all_reduce of 4 float32: ")) << gone;
      }
    }
    const int64_t neighbour = gone ^ 1;
    EXPECT_THAT(text_of(errors[static_cast<size_t>(neighbour)]),
                HasSubstr("rank " + std::to_string(gone) + " left the group"));
  }
}

TEST(Hierarchical, AMissingRankTimesTheOthersOut) {
  const auto start = Clock::now();
  const auto errors = run_hosts("ring", 3, 2, [&](int64_t rank, Communicator& group) {
    at::Tensor tensor = at::zeros({4});
    group.all_reduce(tensor, soon())->wait();
    if (rank == 1) std::this_thread::sleep_for(milliseconds(600));
    group.all_reduce(tensor, deadline_after(milliseconds(200)))->wait();
  });
  EXPECT_LT(Clock::now() - start, milliseconds(8000));
  for (const int64_t rank : {0, 2})
    EXPECT_THAT(text_of(errors[static_cast<size_t>(rank)]),
                AnyOf(StartsWith("timeout: all_reduce of 4 float32: "),
                      StartsWith("peer_lost: all_reduce of 4 float32: ")));
  EXPECT_THAT(text_of(errors[0]), HasSubstr("rank 1"));
}

TEST(Hierarchical, WhatIsUnderWayIsCutShortWhenARankCloses) {
  const auto start = Clock::now();
  run_hosts("ring", 4, 2, [&](int64_t rank, Communicator& group) {
    if (rank == 3) {
      std::this_thread::sleep_for(milliseconds(300));
      return;
    }
    at::Tensor tensor = at::zeros({4});
    const auto work = group.all_reduce(tensor, soon());
    std::this_thread::sleep_for(milliseconds(100));
    group.close(Clock::now());
    EXPECT_THROW(work->wait(), CommError);
    EXPECT_THROW(group.barrier(soon()), CommError);
  });
  EXPECT_LT(Clock::now() - start, milliseconds(8000));
}

// Ranks 2 and 3 are 0 and 1 of the second host, 2 is 1 of the two leaders.
TEST(Hierarchical, ErrorsNameRanksOfTheWholeGroup) {
  const auto errors = run_hosts("ring", 4, 2, [&](int64_t rank, Communicator& group) {
    at::Tensor tensor = at::zeros({4});
    group.all_reduce(tensor, soon())->wait();
    if (rank == 3) throw std::runtime_error("rank 0 is bad");
    group.all_reduce(tensor, soon())->wait();
  });
  EXPECT_EQ(facts_of(errors[2]).peer, 3);
  EXPECT_THAT(text_of(errors[2]), HasSubstr("within host 1: "));
  EXPECT_THAT(text_of(errors[2]), HasSubstr("rank 3 left the group"));
}

}  // namespace

}  // namespace lockstep
