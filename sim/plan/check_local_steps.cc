#include <fmt/format.h>

#include "scenarios/manifest.h"
#include "scenarios/scenario.h"
#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class LocalStepsCheck : PartCheck {
 public:
  LocalStepsCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    if (s_.model_averaging.kind != "none") averaging();
    if (s_.comm_hook.kind == "post_local_sgd") local_gradients();
    if (!has_own_states(s_)) return;
    need(s_.checkpoint.kind == "none", "/checkpoint", "a checkpoint holds the state of one rank",
         "no checkpoint, or ranks that do not part");
    need(!s_.golden, "/golden", "a stored golden holds the state of one rank", "no golden");
    need(!s_.common_checks, "/common_checks", "common checks know one state of all ranks", "false");
  }

 private:
  void averaging() {
    const int64_t warmup = s_.model_averaging.options.integer("warmup_steps");
    need(warmup < s_.steps, "/model_averaging/warmup_steps",
         fmt::format("/model_averaging/warmup_steps is {}: no step of {} is averaged", warmup,
                     s_.steps),
         fmt::format("less than {}", s_.steps));
    need(!s_.join_divide_by, "/model_averaging", "model averaging with join", "no join");
  }

  void local_gradients() {
    const Options& reducer = s_.reducer.options;
    need(!reducer.flag("find_unused_parameters"), "/reducer/find_unused_parameters",
         "a rank's own gradients, where others may use parameters that it does not", "false");
    const auto manifest = manifest_of(s_.model, s_.dtype);
    need(!manifest || manifest->buffers.empty() || reducer.flag("broadcast_buffers"),
         "/reducer/broadcast_buffers", "local steps, in which buffers part as well", "true");
  }
};

}  // namespace

void check_local_steps(const Scenario& scenario, InputErrors* errors) {
  LocalStepsCheck(scenario, errors).run();
}

}  // namespace lockstep
