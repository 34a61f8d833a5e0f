#include "golden/replay.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

TEST(LockStep, RanksMeetInEveryGather) {
  constexpr int64_t kRanks = 5;
  std::vector<at::Tensor> seen(kRanks);
  run_in_lock_step(kRanks, [&](int64_t rank, BatchGroup& group) {
    for (int64_t meeting = 0; meeting < 50; ++meeting)
      seen[rank] = group.all_gather(at::full({2}, rank + 10 * meeting, at::kDouble));
  });
  const at::Tensor expected = (at::arange(kRanks, at::kDouble) + 490).unsqueeze(1).expand({-1, 2});
  for (const at::Tensor& rows : seen) EXPECT_TRUE(rows.equal(expected));
}

TEST(LockStep, ARankThatFailsFailsThoseThatWaitForIt) {
  for (int64_t guilty : {0, 2}) try {
      run_in_lock_step(3, [&](int64_t rank, BatchGroup& group) {
        group.all_gather(at::zeros({1}));
        if (rank == guilty) throw std::runtime_error("its own reason");
        group.all_gather(at::zeros({1}));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "its own reason");
    }
}

TEST(LockStep, ARankThatIsDoneLeavesTheOthersAlone) {
  EXPECT_THROW(run_in_lock_step(2,
                                [](int64_t rank, BatchGroup& group) {
                                  if (rank == 1) group.all_gather(at::zeros({1}));
                                }),
               std::runtime_error);
}

}  // namespace
}  // namespace lockstep
