#include "sim/worker/reducer_options.h"

#include "scenarios/own_options.h"
#include "sim/fault/mutants.h"

namespace lockstep {
namespace {

CommHookOptions comm_hook_options(const Scenario& scenario) {
  const Options& given = scenario.comm_hook.options;
  CommHookOptions options;
  options.kind = scenario.comm_hook.kind;
  options.seed = scenario.seed;
  if (given.has("name")) options.name = given.text("name");
  if (given.has("rank")) options.rank = given.integer("rank");
  if (given.has("start_step")) options.start_step = given.integer("start_step");
  return options;
}

}  // namespace

ReducerOptions reducer_options_of(const Scenario& scenario, int64_t rank) {
  const Options& given = scenario.reducer.options;
  ReducerOptions options;
  options.kind = scenario.reducer.kind;
  if (given.has("name")) options.name = given.text("name");
  options.own = own_options(given);
  options.bucket_cap_bytes = bytes_of_mib(given.number("bucket_cap_mb"));
  options.first_bucket_bytes = bytes_of_mib(given.number("first_bucket_mb"));
  options.gradient_as_bucket_view = given.flag("gradient_as_bucket_view");
  options.find_unused_parameters = given.flag("find_unused_parameters");
  options.static_graph = given.flag("static_graph");
  options.broadcast_buffers = given.flag("broadcast_buffers");
  options.write_back = given.text("write_back");
  options.buffer_hook = given.text("buffer_hook");
  options.ignored = scenario.ignored;
  options.average_ignored = given.flag("average_ignored");
  options.wrapped_modules = scenario.wrapped_modules;
  options.synchronize_at_construction = !has_mutant(scenario.mutants, "skip_broadcast", rank);
  options.join = scenario.join_divide_by.value_or("none");
  options.comm_hook = comm_hook_options(scenario);
  options.construction_timeout = std::chrono::milliseconds(scenario.timeouts.construction_ms);
  options.collective_timeout = std::chrono::milliseconds(scenario.timeouts.collective_ms);
  return options;
}

}  // namespace lockstep
