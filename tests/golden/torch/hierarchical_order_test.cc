// The order of addition of communicator hierarchical against the communicator itself.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "golden/half_types.h"
#include "golden/reduction_order.h"
#include "tests/reducer/hierarchical/host_ranks.h"

namespace lockstep {
namespace {

at::Tensor input_of(int64_t rank, int64_t count, at::ScalarType dtype) {
  return random_tensor({count}, static_cast<uint64_t>(1000 * count + rank)).to(dtype);
}

template <class T>
void compare(const std::string& algorithm, HostShape shape, at::ScalarType dtype) {
  for (const int64_t count : {1, 7, 700, 70'001}) {
    std::vector<at::Tensor> inputs;
    std::vector<const T*> pointers;
    for (int64_t rank = 0; rank < shape.ranks; ++rank) {
      inputs.push_back(input_of(rank, count, dtype));
      pointers.push_back(static_cast<const T*>(inputs.back().data_ptr()));
    }
    std::vector<T> expected(static_cast<size_t>(count));
    sum_in_order<T>(fmt::format("{}/{}", algorithm, shape.per_host), pointers, count,
                    expected.data());
    const auto errors =
        run_hosts(algorithm, shape.ranks, shape.per_host, [&](int64_t rank, Communicator& group) {
          at::Tensor mine = group.allocate(count, dtype);
          mine.copy_(inputs[static_cast<size_t>(rank)]);
          group.all_reduce(mine, soon())->wait();
          EXPECT_EQ(std::memcmp(mine.data_ptr(), expected.data(), mine.nbytes()), 0)
              << algorithm << " " << shape.ranks << "/" << shape.per_host << " n=" << count;
        });
    for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
  }
}

TEST(HierarchicalOrder, IsThatOfTheCommunicatorBitForBit) {
  for (const HostShape shape : kHostShapes)
    for (const char* algorithm : {"ring", "bcube", "halving_doubling", "ring_chunked"})
      compare<float>(algorithm, shape, at::kFloat);
}

TEST(HierarchicalOrder, OfOtherTypesToo) {
  compare<double>("ring", {7, 4}, at::kDouble);
  compare<Float16>("bcube", {3, 2}, at::kHalf);
  compare<Brain16>("ring", {6, 3}, at::kBFloat16);
}

}  // namespace
}  // namespace lockstep
