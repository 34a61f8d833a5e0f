#include "sim/fault/reducer_mutants.h"

#include <ATen/core/Tensor.h>

#include "sim/fault/mutants.h"

namespace lockstep {
namespace {

// Divides so many times, where once is right.
class DividingHook : public CommHook {
 public:
  explicit DividingHook(int divisions) : divisions_(divisions) {}

  Finish start(const HookBucket& bucket, HookGroup& group) override {
    at::Tensor gradients = bucket.gradients;
    for (int i = 0; i < divisions_; ++i) gradients.div_(group.world_size());
    const CommWorkPtr work = group.all_reduce(gradients);
    return [work, gradients] {
      work->wait();
      return gradients;
    };
  }

 private:
  const int divisions_;
};

class SumUndivided : public DividingHook {
 public:
  SumUndivided() : DividingHook(0) {}
};
LOCKSTEP_REGISTER_COMM_HOOK("mutant sum_undivided", SumUndivided);

class DivideTwice : public DividingHook {
 public:
  DivideTwice() : DividingHook(2) {}
};
LOCKSTEP_REGISTER_COMM_HOOK("mutant divide_twice", DivideTwice);

}  // namespace

void apply_reducer_mutants(const std::vector<MutantSpec>& mutants, int64_t rank,
                           ReducerOptions* options) {
  for (const MutantSpec& mutant : mutants) {
    if (mutant.rank.value_or(rank) != rank) continue;
    CommHookOptions& hook = options->comm_hook;
    if (mutant.kind == "ignore_parameter") options->ignored.push_back(mutant.tensor.value());
    if (mutant.kind == "hook_path") hook.kind = "allreduce";
    if (mutant.kind == "cast_early") hook.kind = "bf16";
    if (mutant.kind == "skip_hook") {
      hook.kind = "post_local_sgd";
      hook.start_step = mutant.step.value_or(1);
    }
    if (mutant.kind != "sum_undivided" && mutant.kind != "divide_twice") continue;
    hook.kind = "registered";
    hook.name = "mutant " + mutant.kind;
  }
}

}  // namespace lockstep
