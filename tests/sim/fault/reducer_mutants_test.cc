#include "sim/fault/reducer_mutants.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

ReducerOptions options_with(const std::string& kind, std::optional<int64_t> step = {}) {
  MutantSpec mutant;
  mutant.kind = kind;
  mutant.step = step;
  mutant.tensor = "fc1";
  ReducerOptions options;
  apply_reducer_mutants({mutant}, 1, &options);
  return options;
}

class Group : public HookGroup {
 public:
  explicit Group(Communicator& inner) : inner_(inner) {}
  int64_t world_size() const override { return inner_.world_size(); }
  CommWorkPtr all_reduce(const at::Tensor& tensor) override {
    return inner_.all_reduce(tensor, soon());
  }
  CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) override {
    return inner_.all_gather(output, input, soon());
  }

 private:
  Communicator& inner_;
};

// What three ranks with a gradient of 9 each have after the hook of that mutant.
double averaged_by(const ReducerOptions& options, int64_t step = 1) {
  double seen = 0;
  run_ranks({"local", "ring"}, 3, [&](int64_t rank, Communicator& communicator) {
    Group group(communicator);
    const at::Tensor gradients = at::full({2}, 9.0);
    const auto hook = make_comm_hook(options.comm_hook);
    const at::Tensor result =
        hook->start({.step = step, .gradients = gradients, .by_parameter = {gradients}}, group)();
    if (rank == 0) seen = result[0].item<double>();
  });
  return seen;
}

TEST(ReducerMutants, HooksDivideOnceNeverOrTwice) {
  EXPECT_EQ(averaged_by(options_with("hook_path")), 9);
  EXPECT_EQ(averaged_by(options_with("sum_undivided")), 27);
  EXPECT_EQ(averaged_by(options_with("divide_twice")), 3);
  EXPECT_EQ(options_with("cast_early").comm_hook.kind, "bf16");
}

TEST(ReducerMutants, ASkippedHookLeavesTheRanksOwnFromItsStepOn) {
  const ReducerOptions options = options_with("skip_hook", 2);
  EXPECT_EQ(options.comm_hook.start_step, 2);
  EXPECT_EQ(options.comm_hook.kind, "post_local_sgd");
}

TEST(ReducerMutants, OthersLeaveTheHookAlone) {
  EXPECT_EQ(options_with("flip_bit").comm_hook.kind, "none");
  EXPECT_EQ(options_with("ignore_parameter").ignored, std::vector<std::string>{"fc1"});
  MutantSpec of_rank_0;
  of_rank_0.kind = "hook_path";
  of_rank_0.rank = 0;
  ReducerOptions options;
  apply_reducer_mutants({of_rank_0}, 1, &options);
  EXPECT_EQ(options.comm_hook.kind, "none");
}

}  // namespace
}  // namespace lockstep
