#include "scenarios/scenario.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

// The numbers at the start of `text`, which is left with what follows them.
std::vector<int> take_numbers(std::string_view* text) {
  std::vector<int> numbers;
  for (std::string_view rest = *text;;) {
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) return numbers;
    numbers.push_back(number);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    *text = rest;
    if (!rest.starts_with('.')) return numbers;
    rest.remove_prefix(1);
  }
}

// As far as the bound says anything.
std::strong_ordering compare(std::vector<int> version, const std::vector<int>& bound) {
  version.resize(bound.size());
  return std::lexicographical_compare_three_way(version.begin(), version.end(), bound.begin(),
                                                bound.end());
}

bool satisfies_bounds(const std::string& comparison, std::strong_ordering order) {
  if (comparison == "<") return std::is_lt(order);
  if (comparison == "<=") return std::is_lteq(order);
  if (comparison == ">") return std::is_gt(order);
  if (comparison == ">=") return std::is_gteq(order);
  return std::is_eq(order);
}

}  // namespace

std::optional<VersionRange> VersionRange::parse(const std::string& text) {
  VersionRange range;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.starts_with('+') && word.size() > 1) {
      range.tags_.push_back(word);
      continue;
    }
    const size_t digits = word.find_first_not_of("<>=");
    if (digits == std::string::npos) return std::nullopt;
    Bound bound{word.substr(0, digits), {}};
    static const std::vector<std::string> kComparisons = {"", "=", "<", "<=", ">", ">="};
    std::string_view rest = std::string_view(word).substr(digits);
    bound.numbers = take_numbers(&rest);
    if (bound.numbers.empty() || !rest.empty() ||
        std::find(kComparisons.begin(), kComparisons.end(), bound.comparison) == kComparisons.end())
      return std::nullopt;
    range.bounds_.push_back(std::move(bound));
  }
  if (range.bounds_.empty() && range.tags_.empty()) return std::nullopt;
  return range;
}

bool VersionRange::contains(const std::string& version) const {
  std::string_view rest = version;
  const std::vector<int> numbers = take_numbers(&rest);
  const auto holds = [&](const Bound& bound) {
    return satisfies_bounds(bound.comparison, compare(numbers, bound.numbers));
  };
  const auto has = [&](const std::string& tag) { return rest.find(tag) != std::string_view::npos; };
  return !numbers.empty() && std::all_of(bounds_.begin(), bounds_.end(), holds) &&
         std::all_of(tags_.begin(), tags_.end(), has);
}

int64_t ranks_of(const Scenario& scenario) {
  return scenario.reducer.kind == "data_parallel" ? 1 : scenario.world_size;
}

bool has_virtual_shards(const Scenario& scenario) { return scenario.reducer.kind == "invariant"; }

bool states_bound(const Scenario& scenario) {
  const Options& hook = scenario.comm_hook.options;
  return hook.has("error") || hook.has("owed");
}

int64_t shards_of(const Scenario& scenario) {
  const Options& options = scenario.reducer.options;
  // Before the plan has checked it, it may be missing.
  return has_virtual_shards(scenario) && options.has("virtual_shards")
             ? options.integer("virtual_shards")
             : scenario.world_size;
}

Scenario with_rank_per_shard(Scenario scenario) {
  scenario.world_size = shards_of(scenario);
  return scenario;
}

bool shares_optimizer(const Scenario& scenario) {
  return scenario.optimizer_sharding.kind != "none" || scenario.reducer.kind == "sharded";
}

bool is_frozen(const Scenario& scenario, const std::string& parameter) {
  return is_named_in(scenario.frozen, parameter);
}

bool is_ignored(const Scenario& scenario, const std::string& tensor) {
  return is_named_in(scenario.ignored, tensor);
}

bool averages_gradients(const Scenario& scenario, int64_t step) {
  const Part& hook = scenario.comm_hook;
  return hook.kind != "post_local_sgd" || step < hook.options.integer("start_step");
}

bool averages_parameters(const Scenario& scenario, int64_t step) {
  const Part& averaging = scenario.model_averaging;
  if (averaging.kind == "none") return false;
  const int64_t since = step - 1 - averaging.options.integer("warmup_steps");
  return since >= 0 && since % averaging.options.integer("period") == 0;
}

bool has_own_states(const Scenario& scenario) {
  return scenario.model_averaging.kind != "none" || !averages_gradients(scenario, scenario.steps);
}

int64_t device_of(const Scenario& scenario, const std::string& parameter) {
  if (scenario.devices_per_rank == 1 || scenario.model.kind != "mlp") return 0;
  const auto layers = static_cast<int64_t>(scenario.model.options.integers("hidden").size()) + 1;
  const int64_t layer = std::atoll(parameter.c_str() + 2) - 1;  // "fc2.weight"
  return layer * scenario.devices_per_rank / layers;
}

}  // namespace lockstep
