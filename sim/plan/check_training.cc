#include <fmt/format.h>

#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class TrainingCheck : PartCheck {
 public:
  TrainingCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    optimizer();
    lr_schedule();
    if (s_.loss_scaling.kind != "none") loss_scaling();
    for (size_t i = 0; i < s_.mutants.size(); ++i)
      mutant(fmt::format("/mutants/{}/kind", i), s_.mutants[i].kind);
  }

 private:
  void optimizer() {
    const Options& options = s_.optimizer.options;
    if (s_.optimizer.kind != "sgd" || !options.flag("nesterov")) return;
    need(options.number("momentum") > 0 && options.number("dampening") == 0, "/optimizer/nesterov",
         "nesterov needs a momentum and no dampening", "momentum > 0 and dampening 0");
  }

  void lr_schedule() {
    if (s_.lr_schedule.kind != "cosine") return;
    const double lowest = s_.lr_schedule.options.number("min_lr");
    const double lr = s_.optimizer.options.number("lr");
    need(lowest <= lr, "/lr_schedule/min_lr",
         fmt::format("/lr_schedule/min_lr is {}, but /optimizer/lr is {}", lowest, lr),
         fmt::format("at most {}", lr));
  }

  void loss_scaling() {
    const Options& options = s_.loss_scaling.options;
    for (const std::string key : {"initial_scale", "growth_factor", "backoff_factor"}) {
      const double value = options.number(key);
      need(is_power_of_two(value), "/loss_scaling/" + key,
           fmt::format("/loss_scaling/{} is {}", key, value), "a power of two");
    }
    need(options.number("backoff_factor") < 1, "/loss_scaling/backoff_factor",
         "a backoff_factor of 1 never lowers the scale", "a power of two below 1");
    const int64_t step = options.integer("overflow_step");
    need(step <= s_.steps, "/loss_scaling/overflow_step", fmt::format("there is no step {}", step),
         fmt::format("a step up to {}, or 0", s_.steps));
    const int64_t rank = options.integer("overflow_rank");
    need(rank < s_.world_size, "/loss_scaling/overflow_rank",
         fmt::format("there is no rank {}", rank),
         fmt::format("a rank from 0 to {}", s_.world_size - 1));
  }

  void mutant(const std::string& pointer, const std::string& kind) {
    if (kind == "clip_before_sum") {
      need(s_.clipping.kind != "none", pointer, "clip_before_sum without clipping",
           "a clipping of kind norm or value");
      need(s_.clipping.kind != "norm" || s_.reducer.kind == "manual", pointer,
           "a rank knows the norm of its own gradients only after its backward, when reducer \"" +
               s_.reducer.kind + "\" has added them already",
           "reducer manual, or a clipping of kind value");
      need(s_.loss_scaling.kind == "none", pointer, "clip_before_sum with loss scaling",
           "no loss_scaling");
    }
    if (kind == "local_skip")
      need(s_.loss_scaling.kind != "none", pointer, "local_skip without loss scaling",
           "a loss_scaling of kind dynamic");
    if (kind == "stale_momentum")
      need(s_.optimizer.kind != "sgd" || s_.optimizer.options.number("momentum") > 0, pointer,
           "stale_momentum of an optimizer without state", "a momentum > 0, or another optimizer");
  }
};

}  // namespace

void check_training(const Scenario& scenario, InputErrors* errors) {
  TrainingCheck(scenario, errors).run();
}

}  // namespace lockstep
