#include <map>
#include <stdexcept>

#include "reducer/comm_hook.h"
#include "reducer/hooks/hooks.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

// Made at its first use: registrations run before main(), in any order.
std::map<std::string, CommHookFactory>& factories() {
  static std::map<std::string, CommHookFactory> known;
  return known;
}

std::unique_ptr<CommHook> make_registered(const std::string& name) {
  const auto found = factories().find(name);
  if (found != factories().end()) return found->second();
  std::string known;
  for (const auto& [other, factory] : factories()) known += " " + other;
  throw std::runtime_error(
      "no comm hook \"" + name +
      "\" is registered in this worker; there are:" + (known.empty() ? " none" : known));
}

}  // namespace

bool register_comm_hook(const std::string& name, CommHookFactory factory) {
  const bool is_new = factories().emplace(name, std::move(factory)).second;
  LOCKSTEP_CHECK(is_new, "a comm hook \"" + name + "\" is registered already");
  return true;
}

std::unique_ptr<CommHook> make_comm_hook(const CommHookOptions& options) {
  if (options.kind == "none") return nullptr;
  if (options.kind == "registered") return make_registered(options.name);
  if (options.kind == "allreduce") return make_all_reduce_hook();
  if (options.kind == "fp16") return make_half_hook(at::kHalf);
  if (options.kind == "post_local_sgd") return make_post_local_sgd_hook(options.start_step);
  if (options.kind == "bf16") return make_half_hook(at::kBFloat16);
  LOCKSTEP_CHECK(options.kind == "powersgd", "no comm hook " + options.kind);
  return make_power_sgd_hook(options);
}

}  // namespace lockstep
