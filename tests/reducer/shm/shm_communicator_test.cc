#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "reducer/communicator.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

const std::vector<std::string> kGloos = {"ring", "bcube", "halving_doubling", "ring_chunked"};

at::Tensor shm_values(int64_t rank, int64_t count, at::ScalarType dtype) {
  const at::Tensor random = random_tensor({count}, static_cast<uint64_t>(rank * 7919 + count));
  return at::isFloatingType(dtype) ? random.to(dtype) : random.mul(100).to(dtype);
}

// One on either side of where Gloo's algorithms end their chunks, and of our own pieces.
std::vector<int64_t> sizes_for(int64_t ranks, int64_t element_bytes) {
  std::vector<int64_t> sizes = {1, ranks, 2 * ranks + 1};
  for (const int64_t edge : {int64_t{512}, 512 * ranks, (int64_t{16} << 10) / element_bytes,
                             (int64_t{1} << 20) / element_bytes})
    for (const int64_t more : {-1, 0, 1})
      if (element_bytes == 4 || more == 1) sizes.push_back(edge + more);
  if (ranks == 3 && element_bytes == 4) sizes.push_back(1'700'003);  // several segments a rank
  return sizes;
}

enum class Place { anywhere, allocated, allocated_by_some };

// The sums that rank 1 gets, one of each size.
std::vector<at::Tensor> sums(const Backend& backend, int64_t ranks, at::ScalarType dtype,
                             const std::vector<int64_t>& sizes, Place place = Place::anywhere) {
  std::vector<at::Tensor> results(sizes.size());
  run_ranks(backend, ranks, [&](int64_t rank, Communicator& communicator) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor tensor = shm_values(rank, sizes[i], dtype);
      if (place == Place::allocated || (place == Place::allocated_by_some && rank % 2 == 1))
        tensor = communicator.allocate(sizes[i], dtype).copy_(tensor);
      communicator.all_reduce(tensor, soon())->wait();
      if (rank == 1) results[i] = tensor;
    }
  });
  return results;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

class Order : public testing::TestWithParam<int64_t> {};

TEST_P(Order, IsGloosElementByElement) {
  const int64_t ranks = GetParam();
  for (const std::string& algorithm : kGloos)
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const auto sizes = sizes_for(ranks, dtype == at::kFloat ? 4 : 8);
      const auto of_gloo = sums({"gloo", algorithm}, ranks, dtype, sizes);
      for (const Place place : {Place::anywhere, Place::allocated, Place::allocated_by_some}) {
        const auto of_shm = sums({"shm", algorithm}, ranks, dtype, sizes, place);
        for (size_t i = 0; i < sizes.size(); ++i)
          EXPECT_TRUE(same_bits(of_gloo[i], of_shm[i]))
              << algorithm << " of " << ranks << ", " << sizes[i] << " " << c10::toString(dtype)
              << ", place " << static_cast<int>(place);
      }
    }
}

TEST_P(Order, OfPartsIsThatOfTheWhole) {
  const int64_t ranks = GetParam(), part = 70001;
  run_ranks({"shm", "ring"}, ranks, [&](int64_t rank, Communicator& communicator) {
    for (const Place place : {Place::anywhere, Place::allocated, Place::allocated_by_some}) {
      at::Tensor whole = shm_values(rank, part * ranks, at::kFloat);
      if (place == Place::allocated || (place == Place::allocated_by_some && rank % 2 == 1))
        whole = communicator.allocate(whole.numel(), at::kFloat).copy_(whole);
      at::Tensor own = at::zeros({part});
      communicator.reduce_scatter(own, whole, soon())->wait();
      communicator.all_reduce(whole, soon())->wait();
      EXPECT_TRUE(same_bits(own, whole.narrow(0, rank * part, part).contiguous()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Order, testing::Range(int64_t{2}, int64_t{9}));

TEST(ShmCommunicator, AddsEveryDtypeAsGlooDoes) {
  for (const std::string& algorithm : kGloos)
    for (const at::ScalarType dtype :
         {at::kInt, at::kLong, at::kByte, at::kChar, at::kHalf, at::kBFloat16}) {
      const std::vector<int64_t> sizes = {13, 20001};
      const auto of_gloo = sums({"gloo", algorithm}, 3, dtype, sizes);
      const auto of_shm = sums({"shm", algorithm}, 3, dtype, sizes, Place::allocated);
      for (size_t i = 0; i < sizes.size(); ++i)
        EXPECT_TRUE(same_bits(of_gloo[i], of_shm[i])) << algorithm << c10::toString(dtype);
    }
}

TEST(ShmCommunicator, MovesWhatIsLargerThanItsStagingMemory) {
  constexpr int64_t kPart = 700'001;
  run_ranks({"shm", "ring"}, 3, [](int64_t rank, Communicator& communicator) {
    const auto of = [](int64_t r) { return shm_values(r, kPart, at::kFloat); };
    at::Tensor all = at::zeros({3, kPart});
    communicator.all_gather(all, of(rank), soon())->wait();
    at::Tensor sent = of(rank);
    communicator.broadcast(sent, 2, soon())->wait();
    EXPECT_TRUE(same_bits(sent, of(2)));
    at::Tensor part = at::zeros({kPart});
    communicator.scatter(part, rank == 1 ? all : at::Tensor(), 1, soon())->wait();
    EXPECT_TRUE(same_bits(part, of(rank)));
    at::Tensor gathered = rank == 0 ? at::zeros({3, kPart}) : at::Tensor();
    communicator.gather(gathered, of(rank), 0, soon())->wait();
    for (int64_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(same_bits(all[r], of(r)));
      if (rank == 0) {
        EXPECT_TRUE(same_bits(gathered[r], of(r)));
      }
    }
  });
}

// Of any size, in pieces of staging memory or where it lies, also where only some ranks allocate.
TEST(ShmCommunicator, AllToAllAndAllGatherMoveMemoryOfAnyKind) {
  const auto of = [](int64_t rank, int64_t elements) {
    return random_tensor({elements}, static_cast<uint64_t>(rank) + 5);
  };
  for (const Place place : {Place::anywhere, Place::allocated, Place::allocated_by_some})
    for (const int64_t part : {1, 100, 700'000})
      run_ranks({"shm", "ring"}, 3, [&](int64_t rank, Communicator& communicator) {
        const auto placed = [&](const at::Tensor& values) {
          if (place == Place::anywhere || (place == Place::allocated_by_some && rank % 2 == 0))
            return values.clone();
          return communicator.allocate(values.numel(), at::kFloat).copy_(values);
        };
        const at::Tensor whole = placed(of(rank, 3 * part)), own = placed(of(rank, part));
        for (int round = 0; round < 3; ++round) {
          const at::Tensor parts = at::empty({3, part}), all = at::empty({3, part});
          communicator.all_to_all(parts, whole, soon())->wait();
          communicator.all_gather(all, own, soon())->wait();
          for (int64_t r = 0; r < 3; ++r) {
            EXPECT_TRUE(same_bits(parts[r], of(r, 3 * part).narrow(0, rank * part, part)));
            EXPECT_TRUE(same_bits(all[r], of(r, part)));
          }
        }
        // Whoever is back may write at once: nobody reads any more.
        for (int round = 1; round <= 20; ++round) {
          whole.fill_(round), own.fill_(round);
          const at::Tensor parts = at::empty({3, part}), all = at::empty({3, part});
          communicator.all_to_all(parts, whole, soon())->wait();
          whole.fill_(-1);
          communicator.all_gather(all, own, soon())->wait();
          own.fill_(-1);
          EXPECT_TRUE(parts.eq(round).all().item<bool>() && all.eq(round).all().item<bool>());
        }
      });
}

TEST(ShmCommunicator, APartIsThereWhenNobodyReadsTheWholeAnyMore) {
  constexpr int64_t kPart = 200'000;
  run_ranks({"shm", "ring"}, 3, [](int64_t, Communicator& communicator) {
    const at::Tensor whole = communicator.allocate(3 * kPart, at::kFloat);
    const at::Tensor own = at::zeros({kPart});
    for (int round = 1; round <= 30; ++round) {
      whole.fill_(round);
      communicator.reduce_scatter(own, whole, soon())->wait();
      whole.fill_(-1);
      EXPECT_TRUE(own.eq(3 * round).all().item<bool>()) << round;
    }
  });
}

TEST(ShmCommunicator, AllocatedMemoryIsZeroTakenAgainAndOutlivesTheGroup) {
  std::vector<at::Tensor> kept(2);
  run_ranks({"shm", "ring"}, 2, [&](int64_t rank, Communicator& communicator) {
    void* first = nullptr;
    for (int i = 0; i < 3; ++i) {
      at::Tensor tensor = communicator.allocate(100'000, at::kFloat);
      EXPECT_EQ(tensor.count_nonzero().item<int64_t>(), 0);
      if (i == 0) first = tensor.data_ptr();
      EXPECT_EQ(tensor.data_ptr(), first);
      tensor.fill_(1);
      communicator.all_reduce(tensor, soon())->wait();
      kept[static_cast<size_t>(rank)] = i == 2 ? tensor : at::Tensor();
      tensor = at::Tensor();
      communicator.barrier(soon())->wait();  // the sum's own hold on it ends before this begins
    }
    EXPECT_EQ(communicator.allocate(0, at::kFloat).numel(), 0);
  });
  for (const at::Tensor& tensor : kept) EXPECT_TRUE(tensor.eq(2).all().item<bool>());
}

TEST(ShmCommunicator, NamesWhoCallsSomethingElse) {
  std::vector<std::exception_ptr> errors;
  run_ranks(
      {"shm", "ring"}, 3,
      [](int64_t rank, Communicator& communicator) {
        const at::Tensor tensor = at::zeros({rank == 1 ? 5 : 4});
        communicator.all_reduce(tensor, soon())->wait();
      },
      &errors);
  EXPECT_THAT(text_of(errors[1]), HasSubstr("rejected: all_reduce of 5 float32: rank 1 calls"));
  for (const size_t other : {0, 2})
    EXPECT_THAT(
        text_of(errors[other]),
        HasSubstr("peer_lost: all_reduce of 4 float32: rank 1 calls all_reduce of 5 float32"));
}

TEST(ShmCommunicator, BlamesNobodyWhereHalfCallsSomethingElse) {
  std::vector<std::exception_ptr> errors;
  run_ranks(
      {"shm", "ring"}, 2,
      [](int64_t rank, Communicator& communicator) {
        if (rank == 0) communicator.broadcast(at::zeros({3}), 1, soon())->wait();
        communicator.barrier(soon())->wait();
      },
      &errors);
  EXPECT_EQ(text_of(errors[0]),
            "rejected: broadcast of 3 float32: peers call different collectives; this one "
            "broadcast of 3 float32 of root 1");
  EXPECT_EQ(text_of(errors[1]),
            "rejected: barrier: peers call different collectives; this one barrier");
}

TEST(ShmCommunicator, NamesTheMissingRank) {
  std::vector<std::exception_ptr> errors;
  run_ranks(
      {"shm", "ring"}, 3,
      [](int64_t rank, Communicator& communicator) {
        if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
        communicator.barrier(deadline_after(milliseconds(50)))->wait();
      },
      &errors);
  EXPECT_THAT(text_of(errors[0]) + text_of(errors[2]),
              HasSubstr("timeout: barrier: timed out waiting for rank 1"));
  EXPECT_THAT(text_of(errors[1]), HasSubstr("waiting for rank 1"));
}

TEST(ShmCommunicator, SeesAProcessThatDiesAtOnce) {
  int place[2], armed[2];
  ASSERT_EQ(pipe(place), 0);
  ASSERT_EQ(pipe(armed), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // rank 1: what rank 0 left in its store comes through a pipe
    char text[200] = {};
    if (read(place[0], text, sizeof text - 1) <= 0) _exit(2);
    auto store = std::make_shared<MemoryStore>();
    store->set("shm", text);
    const auto group = make_shm_communicator({1, 2, "ring", "", ""}, store, soon());
    group->barrier(soon())->wait();
    if (write(armed[1], "x", 1) != 1) _exit(3);
    std::this_thread::sleep_for(milliseconds(60));
    raise(SIGKILL);
  }
  auto store = std::make_shared<MemoryStore>();
  std::thread teller([&] {
    const std::string text = store->get("shm", soon());
    EXPECT_GT(write(place[1], text.data(), text.size()), 0);
  });
  const auto group = make_shm_communicator({0, 2, "ring", "", ""}, store, soon());
  teller.join();
  group->barrier(soon())->wait();
  char byte = 0;
  ASSERT_EQ(read(armed[0], &byte, 1), 1);
  const auto work = group->all_reduce(at::zeros({4}), soon());
  EXPECT_FALSE(work->is_done());
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT), 0);
  const auto died = Clock::now();
  try {
    work->wait();
    ADD_FAILURE();
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommFailure::peer_lost);
    EXPECT_STREQ(error.what(), "all_reduce of 4 float32: rank 1 has died");
  }
  EXPECT_LT(Clock::now() - died, milliseconds(200));  // some 10 on an idle machine
  waitpid(child, nullptr, 0);
}

TEST(ShmCommunicator, RefusesMemoryThatIsNotRankZeros) {
  for (const auto& [place, why] : std::vector<std::pair<std::string, std::string>>{
           {"elsewhere 1 1 1 1", "rank 1 runs on another host than rank 0"},
           {"HERE 1 999999 1 1", "cannot reach the memory of rank 0"},
           {"HERE SELF 0 1 1", "is not rank 0's memory"}}) {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string here, text = place;
    file >> here;
    if (const size_t at = text.find("HERE"); at != text.npos) text.replace(at, 4, here);
    if (const size_t at = text.find("SELF"); at != text.npos)
      text.replace(at, 4, std::to_string(getpid()));
    auto store = std::make_shared<MemoryStore>();
    store->set("shm", text);
    try {
      make_shm_communicator({1, 2, "ring", "", ""}, store, soon());
      ADD_FAILURE() << place;
    } catch (const CommError& error) {
      EXPECT_EQ(error.kind(), CommFailure::rejected);
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  }
}

}  // namespace

}  // namespace lockstep
