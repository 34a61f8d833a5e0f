#include "sim/plan/rules.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "scenarios/scenario.h"

namespace lockstep {

const std::string& followed_kind(const Scenario& scenario) {
  const Part& reducer = scenario.reducer;
  return reducer.kind == "registered" ? reducer.options.text("same_bits_as") : reducer.kind;
}

bool compresses(const Scenario& scenario) {
  return scenario.comm_hook.kind == "powersgd" &&
         scenario.comm_hook.options.integer("start_step") <= scenario.steps;
}

namespace {

bool has_ddp_buckets(const Scenario& scenario) {
  const std::string& kind = followed_kind(scenario);
  return kind == "bucketed" || kind == "c10d";
}

// Sharded buckets are closed by caps from the start and never rebuilt.
bool is_sharded(const Scenario& scenario) { return scenario.reducer.kind == "sharded"; }

// DDP looks for unused parameters by caps from the start and never rebuilds, unless the graph is
// said to be static.
bool searches_unused(const Scenario& scenario) {
  const Options& options = scenario.reducer.options;
  return options.flag("find_unused_parameters") && !options.flag("static_graph");
}

// What the hook does to the order of operations. Hooks that are not replayed leave all as it is.
void follow_comm_hook(const Scenario& scenario, ReplayRule* rule) {
  const std::string& hook = scenario.comm_hook.kind;
  if (hook == "none") return;
  rule->division_first_step = rule->division_later = "divide_before";
  if (hook == "fp16") rule->added_as = "float16";
  if (hook == "bf16") rule->added_as = "bfloat16";
}

BucketLayout one_each(const std::vector<int64_t>& parameters) {
  BucketLayout layout;
  for (const int64_t p : parameters) layout.push_back({p});
  return layout;
}

// Registration indices of parameters that are trained and whose name is in `names`, or of all.
std::vector<int64_t> trained_in(const Scenario& scenario, const ModelManifest& manifest,
                                const std::vector<std::string>& names = {}) {
  std::vector<int64_t> trained;
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    const std::string& name = manifest.parameters[p].name;
    if (!is_frozen(scenario, name) && (names.empty() || is_named_in(names, name)))
      trained.push_back(static_cast<int64_t>(p));
  }
  return trained;
}

// Of one reducer with buckets, for parameters of these registration indices.
BucketLayout buckets_of(const Scenario& scenario, const ModelManifest& manifest,
                        const std::vector<int64_t>& trained) {
  const Options& options = scenario.reducer.options;
  std::map<std::pair<std::string, int64_t>, int32_t> keys;  // dtype, device
  std::vector<BucketItem> items;
  for (const int64_t p : trained) {
    const TensorSpec& parameter = manifest.parameters[static_cast<size_t>(p)];
    const auto next = static_cast<int32_t>(keys.size());
    const int64_t device = device_of(scenario, parameter.name);
    const int32_t key = keys.try_emplace({parameter.dtype, device}, next).first->second;
    items.push_back({parameter.bytes(), key, parameter.sparse_gradient});
  }
  const bool flat = followed_kind(scenario) == "flat";
  const bool by_caps = is_sharded(scenario) || has_virtual_shards(scenario);
  const bool one_bucket = flat || (!searches_unused(scenario) && !by_caps);
  BucketLayout layout =
      layout_at_construction(items, one_bucket, bytes_of_mib(options.number("first_bucket_mb")),
                             bytes_of_mib(options.number("bucket_cap_mb")));
  for (auto& bucket : layout)
    for (int64_t& place : bucket) place = trained[static_cast<size_t>(place)];
  return layout;
}

// Of several reducers, the last module's first, as a backward comes to them; then what is averaged
// by hand.
BucketLayout buckets_of_several(const Scenario& scenario, const ModelManifest& manifest) {
  std::vector<std::vector<std::string>> modules;
  for (const std::string& name : scenario.wrapped_modules) modules.insert(modules.begin(), {name});
  if (modules.empty()) modules.emplace_back();
  BucketLayout layout;
  for (const auto& module : modules) {
    std::vector<int64_t> trained;
    for (const int64_t p : trained_in(scenario, manifest, module))
      if (!is_ignored(scenario, manifest.parameters[static_cast<size_t>(p)].name))
        trained.push_back(p);
    for (auto& bucket : buckets_of(scenario, manifest, trained)) layout.push_back(bucket);
  }
  if (scenario.ignored.empty() || !scenario.reducer.options.flag("average_ignored")) return layout;
  for (const auto& bucket : one_each(trained_in(scenario, manifest, scenario.ignored)))
    layout.push_back(bucket);
  return layout;
}

}  // namespace

bool is_power_of_two(double value) {
  int exponent = 0;
  return value > 0 && std::frexp(value, &exponent) == 0.5;
}

ReplayRule replay_rule_of(const Scenario& scenario) {
  const Options& options = scenario.reducer.options;
  const std::string& kind = followed_kind(scenario);
  ReplayRule rule;
  rule.first_bucket_bytes = bytes_of_mib(options.number("first_bucket_mb"));
  rule.bucket_cap_bytes = bytes_of_mib(options.number("bucket_cap_mb"));
  rule.algorithm = scenario.communicator.options.text("algorithm");
  if (scenario.communicator.kind == "hierarchical")
    rule.algorithm += "/" + std::to_string(scenario.communicator.options.integer("ranks_per_host"));
  rule.broadcast_buffers = options.flag("broadcast_buffers");
  rule.buffer_hook = options.text("buffer_hook");
  rule.ignored = scenario.ignored;
  rule.wrapped_modules = scenario.wrapped_modules;
  rule.joins = scenario.join_divide_by.has_value();
  rule.divide_by_active = scenario.join_divide_by == "active_ranks";
  if (scenario.checkpoint.kind == "save_and_resume")
    rule.restart_after_steps =
        rule.double_restart_after_steps = {scenario.checkpoint.options.integer("after_step")};
  rule.rebuild = false;
  if (has_ddp_buckets(scenario)) {
    rule.layout = "ddp";
    rule.rebuild = !searches_unused(scenario);
    // From the second average on, wherever gradients outlive the first.
    const bool outlive = scenario.zero_grad == "zero" || scenario.accumulate_sync == "each";
    const bool views = options.flag("gradient_as_bucket_view");
    if (outlive && views) rule.division_later = "divide_before";
    // A view of a bucket has been divided and summed with it.
    rule.keeps_unused = searches_unused(scenario) && !views;
    // LibTorch's first step on a static graph counts the hooks' calls and asks for no order.
    const bool counts_first = kind == "c10d" && options.flag("static_graph");
    if (counts_first) rule.rebuild_after_step = 2;
    follow_comm_hook(scenario, &rule);
  } else if (is_sharded(scenario)) {
    rule.layout = "ddp";
    rule.padded = true;
    rule.division_first_step = rule.division_later = "divide_before";
  } else if (has_virtual_shards(scenario)) {
    // Where an element lies decides nothing.
    rule.layout = "registration";
    rule.division_first_step = rule.division_later = "divide_after";
    rule.algorithm = "shard_tree";
    rule.fresh_shards = true;
    rule.exchange_in_step = 1;
  } else if (kind == "data_parallel") {
    rule.layout = "registration";
    rule.gathered = true;
    rule.division_first_step = rule.division_later = "none";
  } else if (kind == "none" || kind == "fsdp") {
    rule.layout = "registration";
    rule.division_first_step = rule.division_later = "none";
    if (scenario.reducer.kind == "none") rule.broadcast_buffers = false;
  } else if (kind == "flat") {
    rule.layout = "one_bucket";
  } else {
    LOCKSTEP_CHECK(kind == "per_parameter" || kind == "manual", "reducer " + kind);
    rule.layout = "registration";
    rule.division_first_step = kind == "manual" ? "divide_after" : "divide_before";
    rule.division_later = rule.division_first_step;
  }
  return rule;
}

BucketLayout first_layout(const Scenario& scenario, const ModelManifest& manifest) {
  const std::string& kind = followed_kind(scenario);
  if (kind == "data_parallel" || kind == "none" || kind == "fsdp") return {};
  if (has_ddp_buckets(scenario)) return buckets_of_several(scenario, manifest);
  const std::vector<int64_t> trained = trained_in(scenario, manifest);
  if (kind == "flat" || is_sharded(scenario) || has_virtual_shards(scenario))
    return buckets_of(scenario, manifest, trained);
  BucketLayout layout = one_each(trained);
  if (kind == "per_parameter") std::reverse(layout.begin(), layout.end());
  return layout;
}

}  // namespace lockstep
