#include "reducer/communicator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

class EveryCommunicator : public testing::TestWithParam<std::tuple<Backend, int64_t>> {
 protected:
  const Backend& backend() const { return std::get<0>(GetParam()); }
  int64_t size() const { return std::get<1>(GetParam()); }
};

// Values whose sums are exact in every dtype: element i of rank r is (i % 7) + r.
at::Tensor values(int64_t rank, int64_t count, at::ScalarType dtype) {
  return (at::arange(count).remainder(7) + rank).to(dtype);
}

void check_sums(int64_t rank, Communicator& communicator,
                const std::vector<at::ScalarType>& dtypes) {
  const int64_t ranks = communicator.world_size();
  for (at::ScalarType dtype : dtypes) {
    for (int64_t count : {1, 5, 1000, dtype == at::kFloat ? 20000 : 999}) {
      at::Tensor tensor = values(rank, count, dtype);
      communicator.all_reduce(tensor, soon())->wait();
      const at::Tensor sum = at::arange(count).remainder(7) * ranks + ranks * (ranks - 1) / 2;
      EXPECT_TRUE(tensor.equal(sum.to(dtype))) << c10::toString(dtype) << " x " << count;
    }
  }
}

void check_moves(int64_t rank, Communicator& communicator) {
  const int64_t ranks = communicator.world_size();
  const int64_t root = ranks - 1;
  const at::Tensor own = at::full({2, 3}, static_cast<double>(rank + 1), at::kFloat);
  const at::Tensor by_rank = (at::arange(ranks) + 1).to(at::kFloat).repeat_interleave(6);

  at::Tensor sent = own.clone();
  communicator.broadcast(sent, root, soon())->wait();
  EXPECT_TRUE(sent.eq(static_cast<double>(root + 1)).all().item<bool>());

  at::Tensor all = at::zeros({ranks, 6}, at::kFloat);
  communicator.all_gather(all, own, soon())->wait();
  EXPECT_TRUE(all.view({-1}).equal(by_rank));

  at::Tensor gathered = rank == root ? at::zeros({ranks * 6}, at::kFloat) : at::Tensor();
  communicator.gather(gathered, own, root, soon())->wait();
  if (rank == root) {
    EXPECT_TRUE(gathered.equal(by_rank));
  }

  at::Tensor part = at::zeros({2, 3}, at::kFloat);
  communicator.scatter(part, rank == root ? by_rank : at::Tensor(), root, soon())->wait();
  EXPECT_TRUE(part.equal(own));

  at::Tensor summed = at::zeros({6}, at::kFloat);
  const at::Tensor whole = by_rank + static_cast<double>(rank);
  const at::Tensor before = whole.clone();
  communicator.reduce_scatter(summed, whole, soon())->wait();
  EXPECT_TRUE(summed.eq(static_cast<double>(ranks * (rank + 1) + ranks * (ranks - 1) / 2))
                  .all()
                  .item<bool>());
  EXPECT_TRUE(whole.equal(before));
  communicator.barrier(soon())->wait();
}

TEST_P(EveryCommunicator, AddsAndMoves) {
  run_ranks(backend(), size(), [this](int64_t rank, Communicator& communicator) {
    EXPECT_EQ(communicator.rank(), rank);
    check_sums(rank, communicator, {at::kFloat, at::kDouble, at::kInt, at::kLong, at::kByte});
    check_moves(rank, communicator);
    try {
      check_sums(rank, communicator, {at::kHalf});
    } catch (const CommError& error) {
      // ProcessGroupGloo adds halves only where its Gloo was built for that.
      EXPECT_EQ(backend().kind, "c10d");
      EXPECT_STREQ(error.what(), "all_reduce of 1 float16: Invalid scalar type");
    }
  });
}

TEST_P(EveryCommunicator, RunsManyAtOnceInOrder) {
  if (size() > 3) return;
  run_ranks(backend(), size(), [](int64_t rank, Communicator& communicator) {
    std::vector<at::Tensor> tensors;
    std::vector<CommWorkPtr> works;
    std::atomic<int64_t> ended{0};
    for (int64_t i = 0; i < 20; ++i) {
      tensors.push_back(at::full({100 * i}, static_cast<double>(rank + i), at::kFloat));
      works.push_back(communicator.all_reduce(tensors.back(), soon()));
      works.back()->on_done([&, i](const std::exception_ptr& error) {
        EXPECT_FALSE(error);
        EXPECT_EQ(ended++, i);
      });
    }
    const int64_t ranks = communicator.world_size();
    for (int64_t i = 0; i < 20; ++i) {
      const auto at = static_cast<size_t>(i);
      works[at]->wait();
      EXPECT_TRUE(works[at]->is_done());
      const auto sum = static_cast<double>(ranks * i + ranks * (ranks - 1) / 2);
      EXPECT_TRUE(tensors[at].eq(sum).all().item<bool>());
    }
    EXPECT_EQ(ended, 20);
  });
}

// Rank r has rows r, 3 and 7, the last one twice: its own are added first, then rank after rank.
at::Tensor sparse_part(int64_t rank) {
  const at::Tensor rows = at::tensor({7, 3, static_cast<int>(rank), 7}, at::kLong).unsqueeze(0);
  return at::sparse_coo_tensor(rows, random_tensor({4, 5}, static_cast<uint64_t>(rank) + 1),
                               {20, 5});
}

TEST_P(EveryCommunicator, AddsSparseTensorsRankByRank) {
  at::Tensor expected = at::zeros({20, 5});
  for (int64_t rank = 0; rank < size(); ++rank)
    expected.add_(sparse_part(rank).coalesce().to_dense());
  run_ranks(backend(), size(), [&](int64_t rank, Communicator& communicator) {
    const at::Tensor tensor = sparse_part(rank);
    communicator.all_reduce(tensor, soon())->wait();
    EXPECT_TRUE(tensor.is_coalesced());
    EXPECT_TRUE(tensor.to_dense().equal(expected));
  });
}

TEST_P(EveryCommunicator, AddsSparseTensorsOfWhichSomeAreEmpty) {
  if (size() > 3) return;
  run_ranks(backend(), size(), [&](int64_t rank, Communicator& communicator) {
    const at::Tensor none =
        at::sparse_coo_tensor(at::empty({1, 0}, at::kLong), at::empty({0, 5}), {20, 5});
    const at::Tensor tensor = rank > 0 ? none.clone() : sparse_part(3);
    communicator.all_reduce(tensor, soon())->wait();
    EXPECT_TRUE(tensor.to_dense().equal(sparse_part(3).coalesce().to_dense()));
    communicator.all_reduce(none, soon())->wait();
    EXPECT_EQ(none._nnz(), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryCommunicator,
    testing::Combine(testing::Values(Backend{"local", "ring"}, Backend{"local", "bcube"},
                                     Backend{"local", "halving_doubling"},
                                     Backend{"local", "ring_chunked"},
                                     Backend{"local", "rank_order"}, Backend{"gloo", "ring"},
                                     Backend{"gloo", "bcube"}, Backend{"gloo", "halving_doubling"},
                                     Backend{"gloo", "ring_chunked"}, Backend{"c10d", "ring"},
                                     Backend{"shm", "ring"}, Backend{"shm", "bcube"},
                                     Backend{"shm", "halving_doubling"},
                                     Backend{"shm", "ring_chunked"}, Backend{"shm", "rank_order"}),
                     testing::Values(1, 2, 3, 6, 7)),
    [](const auto& test) {
      const Backend& backend = std::get<0>(test.param);
      return backend.kind + "_" + backend.algorithm + "_" + std::to_string(std::get<1>(test.param));
    });

// The threads' sums are Gloo's, bit for bit: nothing about order shows at two ranks, and some wrong
// orders only at six or seven.
TEST(LocalCommunicator, AddsInGloosOrder) {
  for (const std::string algorithm : {"ring", "bcube", "halving_doubling", "ring_chunked"}) {
    for (int64_t ranks : {3, 4, 6, 7}) {
      std::map<std::string, std::vector<at::Tensor>> results;
      for (const std::string kind : {"local", "gloo"}) {
        auto& sums = results[kind];
        run_ranks({kind, algorithm}, ranks, [&](int64_t rank, Communicator& communicator) {
          for (int64_t count : {1, 3, 13, 700, 20001, ranks == 3 ? 1700003 : 4099}) {
            at::Tensor tensor = random_tensor({count}, static_cast<uint64_t>(rank * 1000 + count));
            communicator.all_reduce(tensor, soon())->wait();
            if (rank == 1) sums.push_back(tensor);
          }
        });
      }
      for (size_t i = 0; i < results["local"].size(); ++i) {
        EXPECT_TRUE(results["local"][i].equal(results["gloo"][i]))
            << algorithm << ", " << ranks << " ranks, " << results["local"][i].numel();
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
