#include "reducer/comm_hook.h"
#include "reducer/hooks/hooks.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

Registry<CommHookFactory>& hooks() {
  static Registry<CommHookFactory> known("comm hook");
  return known;
}

}  // namespace

bool register_comm_hook(const std::string& name, CommHookFactory factory) {
  return hooks().add(name, std::move(factory));
}

std::unique_ptr<CommHook> make_comm_hook(const CommHookOptions& options) {
  if (options.kind == "none") return nullptr;
  if (options.kind == "registered") return hooks().get(options.name)();
  if (options.kind == "allreduce") return make_all_reduce_hook();
  if (options.kind == "fp16") return make_half_hook(at::kHalf);
  if (options.kind == "post_local_sgd") return make_post_local_sgd_hook(options.start_step);
  if (options.kind == "bf16") return make_half_hook(at::kBFloat16);
  LOCKSTEP_CHECK(options.kind == "powersgd", "no comm hook " + options.kind);
  return make_power_sgd_hook(options);
}

}  // namespace lockstep
