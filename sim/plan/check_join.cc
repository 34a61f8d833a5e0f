#include <fmt/format.h>

#include <algorithm>

#include "scenarios/split.h"
#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class JoinCheck : PartCheck {
 public:
  JoinCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    if (!batches_per_rank()) return;
    if (s_.join_divide_by)
      join();
    else if (!Split(s_).is_even())
      uneven();
  }

 private:
  bool batches_per_rank() {
    const Options& split = s_.split.options;
    if (!split.has("batches_per_rank")) return true;
    const size_t before = errors_->size();
    const std::vector<int64_t> batches = split.integers("batches_per_rank");
    const auto given = static_cast<int64_t>(batches.size());
    need(given == s_.world_size, "/split/batches_per_rank",
         fmt::format("/split/batches_per_rank has {} numbers for {} ranks", given, s_.world_size),
         fmt::format("{} numbers", s_.world_size));
    const int64_t most = *std::max_element(batches.begin(), batches.end());
    const int64_t samples = s_.data.options.integer("samples");
    need(samples / s_.batch_size >= most, "/split/batches_per_rank",
         fmt::format("/split/batches_per_rank asks for {} batches of {}, but there are {} samples",
                     most, s_.batch_size, samples),
         fmt::format("numbers up to {}", samples / s_.batch_size));
    return errors_->size() == before;
  }

  void join() {
    const Options& reducer = s_.reducer.options;
    const std::string& kind = s_.reducer.kind;
    need(kind == "bucketed" || kind == "c10d", "/join",
         fmt::format("reducer \"{}\" does not join", kind), "reducer bucketed or c10d");
    need(!reducer.flag("static_graph"), "/reducer/static_graph",
         "a static graph with join: a rank without a batch knows no graph", "false");
    const int64_t epoch = Split(s_).steps_per_epoch();
    need(s_.steps % epoch == 0, "/steps",
         fmt::format("/steps is {}, but ranks join at the end of an epoch of {} steps", s_.steps,
                     epoch),
         fmt::format("a multiple of {}", epoch));
    comm_hook();
    alone();
    need(s_.checkpoint.kind == "none", "/checkpoint", "a checkpoint with join", "no checkpoint");
    need(!s_.golden, "/golden", "a stored golden with join", "no golden");
  }

  // What the others need of a rank in every step, and a rank without a batch does not do.
  void alone() {
    need(s_.accumulate_sync == "last", "/accumulate_sync",
         "micro-batches synchronized each, with join: a rank without a batch shadows one average a "
         "step",
         "\"last\"");
    need(!shares_optimizer(s_), "/optimizer_sharding/kind",
         "a shared-out optimizer with join: a rank without a batch updates nobody's weights",
         "\"none\"");
    const Options& model = s_.model.options;
    need(!model.has("norm") || !model.text("norm").starts_with("sync"), "/model/norm",
         "normalization over all ranks with join: a rank without a batch has nothing to normalize",
         "another norm");
  }

  void comm_hook() {
    const std::string& hook = s_.comm_hook.kind;
    const bool averages = hook == "none" || hook == "allreduce" || hook == "fp16" || hook == "bf16";
    need(averages, "/comm_hook/kind",
         fmt::format("comm hook \"{}\" does not just average: ranks without a batch are not zero "
                     "to it",
                     hook),
         "none, allreduce, fp16 or bf16");
    need(hook == "none" || s_.join_divide_by == "initial_world_size", "/join/divide_by",
         fmt::format("comm hook \"{}\" divides by all ranks itself", hook),
         "\"initial_world_size\"");
  }

  void uneven() {
    const int64_t epoch = Split(s_).steps_per_epoch();
    need(s_.steps <= epoch, "/steps",
         fmt::format("without join a rank with fewer batches stops in the first epoch, of {} steps",
                     epoch),
         fmt::format("at most {}, or join", epoch));
  }
};

}  // namespace

void check_join(const Scenario& scenario, InputErrors* errors) {
  JoinCheck(scenario, errors).run();
}

}  // namespace lockstep
