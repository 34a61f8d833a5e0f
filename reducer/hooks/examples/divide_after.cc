// A comm hook of one's own, as any source that the worker is built with may hold it: adds first and
// divides then. The scenario features/own_comm_hook asks for it by name.
#include "reducer/comm_hook.h"

namespace lockstep {
namespace {

class DivideAfter : public CommHook {
 public:
  Finish start(const HookBucket& bucket, HookGroup& group) override {
    at::Tensor gradients = bucket.gradients;
    const CommWorkPtr work = group.all_reduce(gradients);
    return [work, gradients, ranks = group.world_size()] {
      work->wait();
      return gradients.div_(ranks);
    };
  }
};

LOCKSTEP_REGISTER_COMM_HOOK("divide_after", DivideAfter);

}  // namespace
}  // namespace lockstep
