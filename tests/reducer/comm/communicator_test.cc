#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "reducer/base/parameter_sync.h"
#include "reducer/comm/pending_work.h"
#include "reducer/communicator.h"
#include "tests/reducer/kinds/small_model.h"
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

// Element i of what rank a sends to rank b: i + 1000 a + b. The large one does not fit into the
// staging memory of ranks that share a host.
void check_exchange(int64_t rank, Communicator& communicator) {
  const int64_t ranks = communicator.world_size();
  for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{700'001}}) {
    const at::Tensor peers = at::arange(ranks).view({ranks, 1}), places = at::arange(count);
    const at::Tensor sent = (places + 1000 * rank + peers).to(at::kDouble);
    const at::Tensor before = sent.clone();
    at::Tensor received = at::zeros({ranks * count}, at::kDouble);
    communicator.all_to_all(received, sent, soon())->wait();
    EXPECT_TRUE(received.view({ranks, count}).equal((places + 1000 * peers + rank).to(at::kDouble)))
        << count;
    EXPECT_TRUE(sent.equal(before));
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
  at::Tensor numbers = at::zeros({ranks}, at::kFloat);
  communicator.all_gather(numbers, own.view({-1}).narrow(0, 0, 1), soon())->wait();
  EXPECT_TRUE(numbers.equal((at::arange(ranks) + 1).to(at::kFloat)));

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
  check_exchange(rank, communicator);
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

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Recording, NumbersCollectivesAndBuckets) {
  TestProbe probe;
  const CommOptions options;
  const auto alone = make_local_communicator(options, make_local_hub(1));
  const auto recording = make_recording(*alone, probe);
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
  const auto alone = make_local_communicator(options, make_local_hub(2));
  const auto recording = make_recording(*alone, probe);
  const auto work = recording->barrier(deadline_after(std::chrono::milliseconds(20)));
  EXPECT_THROW(work->wait(), CommError);
  EXPECT_EQ(probe.arrivals.size(), 1U);
  EXPECT_TRUE(probe.ends.empty());
}

TEST(Recording, AnErrorSaysWhichCollectiveItWas) {
  TestProbe probe;
  CommOptions options;
  options.world_size = 2;
  const auto alone = make_local_communicator(options, make_local_hub(2));
  const auto recording = make_recording(*alone, probe);
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
