#include "sim/plan/rules.h"

#include <algorithm>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

bool has_ddp_buckets(const Scenario& scenario) {
  return scenario.reducer.kind == "bucketed" || scenario.reducer.kind == "c10d";
}

// DDP looks for unused parameters by caps from the start and never rebuilds, unless the graph is
// said to be static.
bool searches_unused(const Scenario& scenario) {
  const Options& options = scenario.reducer.options;
  return options.flag("find_unused_parameters") && !options.flag("static_graph");
}

BucketLayout one_each(int64_t count) {
  BucketLayout layout;
  for (int64_t i = 0; i < count; ++i) layout.push_back({i});
  return layout;
}

}  // namespace

bool asks_for(const Scenario& scenario, const std::string& lane) {
  return std::find(scenario.lanes.begin(), scenario.lanes.end(), lane) != scenario.lanes.end();
}

ReplayRule replay_rule_of(const Scenario& scenario) {
  const Options& options = scenario.reducer.options;
  const std::string& kind = scenario.reducer.kind;
  ReplayRule rule;
  rule.first_bucket_bytes = bytes_of_mib(options.number("first_bucket_mb"));
  rule.bucket_cap_bytes = bytes_of_mib(options.number("bucket_cap_mb"));
  rule.algorithm = scenario.communicator.options.text("algorithm");
  rule.rebuild = false;
  if (has_ddp_buckets(scenario)) {
    rule.layout = "ddp";
    rule.rebuild = !searches_unused(scenario);
    const bool keeps_views =
        options.flag("gradient_as_bucket_view") && scenario.zero_grad == "zero";
    if (keeps_views) rule.division_later = "divide_before";
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
  const Options& options = scenario.reducer.options;
  const auto count = static_cast<int64_t>(manifest.parameters.size());
  if (has_ddp_buckets(scenario)) {
    std::vector<BucketItem> items;
    for (const TensorSpec& parameter : manifest.parameters) items.push_back({parameter.bytes()});
    return layout_at_construction(items, !searches_unused(scenario),
                                  bytes_of_mib(options.number("first_bucket_mb")),
                                  bytes_of_mib(options.number("bucket_cap_mb")));
  }
  BucketLayout layout = one_each(count);
  if (scenario.reducer.kind == "per_parameter") std::reverse(layout.begin(), layout.end());
  if (scenario.reducer.kind != "flat") return layout;
  std::vector<int64_t> all(count);
  for (int64_t i = 0; i < count; ++i) all[i] = i;
  return {all};
}

}  // namespace lockstep
