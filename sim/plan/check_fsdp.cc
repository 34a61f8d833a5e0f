#include <fmt/format.h>

#include "scenarios/scenario.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

constexpr const char* kKeys[] = {"reshard_after_forward", "prefetch", "shard_ranks", "gather_dtype",
                                 "reduce_dtype"};
// Of DDP, and what they are where nobody says it.
constexpr std::pair<const char*, bool> kFlagsOfDdp[] = {{"gradient_as_bucket_view", false},
                                                        {"find_unused_parameters", false},
                                                        {"static_graph", false},
                                                        {"average_ignored", false}};

class FsdpCheck : PartCheck {
 public:
  FsdpCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run(const SimulatedSize& simulated) {
    const Options& reducer = s_.reducer.options;
    if (s_.reducer.kind != "fsdp") {
      for (const char* key : kKeys)
        need(!reducer.has(key), std::string("/reducer/") + key,
             fmt::format("reducer \"{}\" gathers no parameters", s_.reducer.kind),
             "none, or reducer fsdp");
      return;
    }
    need(simulated.only, "/reducer/kind",
         "reducer \"fsdp\" is known to virtual time alone: no worker has it",
         "lockstep simulate, or reducer sharded");
    for (const auto& [flag, usual] : kFlagsOfDdp)
      need(reducer.flag(flag) == usual, std::string("/reducer/") + flag,
           fmt::format("{} is DDP's", flag), usual ? "true" : "false");
    alone("/comm_hook/kind", s_.comm_hook.kind == "none", "a comm hook");
    alone("/model_averaging/kind", s_.model_averaging.kind == "none", "an average of parameters");
    alone("/optimizer_sharding/kind", s_.optimizer_sharding.kind == "none",
          "an optimizer that is shared out anyway");
    alone("/frozen", s_.frozen.empty(), "a parameter that is gathered and has no gradient");
    alone("/ignored", s_.ignored.empty(), "a parameter that is in no unit");
    alone("/wrapped_modules", s_.wrapped_modules.empty(),
          "modules by name, where each numbered block is one");
    need(s_.communicator.options.text("algorithm") == "ring", "/communicator/algorithm",
         "parameters are gathered and gradients reduced in rings, or by hosts (a machine's "
         "\"hierarchical\")",
         "ring");
  }

 private:
  void alone(const char* pointer, bool good, const char* what) {
    need(good, pointer, fmt::format("with reducer \"fsdp\" nobody has thought through {}", what),
         "none");
  }
};

}  // namespace

void check_fsdp(const Scenario& scenario, const SimulatedSize& simulated, InputErrors* errors) {
  FsdpCheck(scenario, errors).run(simulated);
}

}  // namespace lockstep
