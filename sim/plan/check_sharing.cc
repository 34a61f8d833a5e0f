#include <fmt/format.h>

#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class SharingCheck : PartCheck {
 public:
  SharingCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    const bool zero = s_.optimizer_sharding.kind == "zero";
    need(!zero || (s_.reducer.kind != "sharded" && s_.reducer.kind != "data_parallel" &&
                   s_.reducer.kind != "none"),
         "/optimizer_sharding/kind",
         fmt::format("reducer \"{}\" leaves no averaged gradients on all ranks", s_.reducer.kind),
         "reducer bucketed, c10d, flat, per_parameter or manual");
    need(!zero || s_.frozen.empty() || s_.optimizer.kind != "adagrad", "/frozen",
         "adagrad has a state of frozen parameters too, which would be no rank's", "[]");
    if (s_.reducer.kind == "sharded") sharded();
    if (s_.reducer.kind == "data_parallel") data_parallel();
    need(s_.reducer.kind != "none" || s_.mutants.empty(), "/mutants",
         "with reducer \"none\" there is no lane that could find a defect", "[]");
    for (size_t i = 0; i < s_.mutants.size(); ++i)
      mutant(fmt::format("/mutants/{}/kind", i), s_.mutants[i].kind);
  }

 private:
  // A rank holds the averaged gradients of its own part only.
  void sharded() {
    need(s_.clipping.kind != "norm", "/clipping/kind",
         "with reducer \"sharded\" no rank knows the norm of all averaged gradients",
         "\"none\" or \"value\"");
    need(s_.loss_scaling.kind == "none", "/loss_scaling/kind",
         "with reducer \"sharded\" no rank sees whether all averaged gradients are finite",
         "\"none\"");
    need(s_.accumulate_sync == "last", "/accumulate_sync",
         "with reducer \"sharded\" a rank adds to the averages of its own part only, and the next "
         "micro-batch's average divides them again",
         "\"last\"");
  }

  void data_parallel() {
    const std::string& algorithm = s_.communicator.options.text("algorithm");
    need(s_.communicator.kind == "local", "/communicator/kind",
         fmt::format(
             "reducer \"data_parallel\" is one process, communicator \"{}\" connects several",
             s_.communicator.kind),
         "\"local\"");
    need(
        algorithm == "rank_order", "/communicator/algorithm",
        fmt::format("reducer \"data_parallel\" adds gradients replica after replica, not as \"{}\"",
                    algorithm),
        "\"rank_order\"");
    need(s_.split.kind != "manual", "/split/kind",
         "reducer \"data_parallel\" scatters the batch itself", "another split");
  }

  void mutant(const std::string& pointer, const std::string& kind) {
    need(kind != "drop_weights" || shares_optimizer(s_), pointer,
         "drop_weights without a sharded optimizer", "optimizer_sharding zero, or reducer sharded");
    const bool of_groups = kind != "wrong_divisor" && kind != "duplicate_shard" &&
                           kind != "wrong_lr" && kind != "stale_momentum";
    need(s_.reducer.kind != "data_parallel" || !of_groups, pointer,
         fmt::format("{} cannot act in one process", kind),
         "wrong_divisor, duplicate_shard, wrong_lr or stale_momentum");
  }
};

}  // namespace

void check_sharing(const Scenario& scenario, InputErrors* errors) {
  SharingCheck(scenario, errors).run();
}

}  // namespace lockstep
