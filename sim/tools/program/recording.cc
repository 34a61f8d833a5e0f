#include "sim/tools/program/recording.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRankBytesMost = int64_t{257} << 20;  // what the agent writes at most, and an end

std::vector<Sketch> sketches(const Json& list) {
  std::vector<Sketch> found;
  for (const Json& item : list) found.push_back(sketch_of(item));
  return found;
}

std::vector<HookedGradient> hooked_gradients(const Json& by_name) {
  std::vector<HookedGradient> found;
  for (const auto& [name, factor] : by_name.items())
    found.push_back({name, factor.is_null() ? std::nullopt : std::optional(factor.get<double>())});
  return found;
}

// JSON has no infinity: null.
double finite_or_infinite(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>();
}

HookedBuckets hooked_buckets(const Json& facts) {
  return {.buckets = whole_number(facts.at("buckets")),
          .error = finite_or_infinite(facts.at("error")),
          .owed = finite_or_infinite(facts.at("owed")),
          .control_error = finite_or_infinite(facts.at("control_error")),
          .control_owed = finite_or_infinite(facts.at("control_owed")),
          .hash = facts.at("hash").get<std::string>()};
}

// Throws nlohmann::json::exception.
ProgramStep program_step_of(const Json& line) {
  ProgramStep step;
  step.optimizer = whole_number(line.at("optimizer"));
  step.ddp_forwards = whole_number(line.at("ddp_forwards"));
  step.forwards = whole_number(line.at("forwards"));
  step.backwards = whole_number(line.at("backwards"));
  step.model_loads = whole_number(line.at("model_loads"));
  step.optimizer_loads = whole_number(line.at("optimizer_loads"));
  step.position = whole_number(line.at("position"));
  step.not_waited = line.at("not_waited").get<bool>();
  step.written_in_flight = line.at("written_in_flight").get<bool>();
  step.batches = whole_number(line.at("batches"));
  step.carried = line.at("carried").get<bool>();
  step.gathered_inside = line.at("gathered_inside").get<bool>();
  step.gathered = line.at("gathered").get<bool>();
  step.clipped_early = line.at("clipped_early").get<bool>();
  step.replaced = line.at("replaced").get<std::vector<std::string>>();
  step.unused = line.at("unused").get<std::vector<std::string>>();
  step.unfrozen = line.at("unfrozen").get<std::vector<std::string>>();
  step.refrozen = line.at("refrozen").get<std::vector<std::string>>();
  step.unheld = line.at("unheld").get<std::vector<std::string>>();
  step.reduced_again = line.at("reduced_again").get<std::vector<std::string>>();
  step.no_sums = line.at("no_sums").get<std::vector<std::string>>();
  step.summed_early = line.at("summed_early").get<std::vector<std::string>>();
  step.shards = line.at("shards").get<std::vector<std::string>>();
  step.dropouts = whole_number(line.at("dropouts"));
  step.exchanges = whole_number(line.at("exchanges"));
  step.dealt_out = whole_number(line.at("dealt_out"));
  step.within_step = whole_number(line.at("within_step"));
  step.elements = whole_number(line.at("elements"));
  step.options = line.at("options").get<std::vector<std::string>>();
  get_exact(line.at("groups"), step.groups);
  step.before_hash = line.at("before_hash").get<std::string>();
  step.unreduced = line.at("unreduced").get<std::vector<std::string>>();
  step.own_in_part = line.at("own_in_part").get<std::vector<std::string>>();
  step.unsynced_alone = line.at("unsynced_alone").get<std::vector<std::string>>();
  step.written_past = line.at("written_past").get<std::vector<std::string>>();
  step.written_late = line.at("written_late").get<std::vector<std::string>>();
  step.unsynced = line.at("unsynced").get<bool>();
  step.line = line.at("line").get<std::string>();
  step.names = line.at("names").get<std::vector<std::string>>();
  step.grad_hashes = line.at("grad_hashes").get<std::vector<std::string>>();
  step.param_hashes = line.at("param_hashes").get<std::vector<std::string>>();
  step.samples = line.at("samples").get<std::vector<std::string>>();
  step.buffer_hash = line.at("buffer_hash").get<std::string>();
  step.state_hash = line.at("state_hash").get<std::string>();
  step.state_keys = line.at("state_keys").get<std::string>();
  step.state_before = line.at("state_before").get<std::string>();
  step.by_grad = line.at("by_grad").get<std::vector<std::string>>();
  get_exact(line.at("sum_order"), step.sum_order);
  for (const auto& [name, hash] : line.at("left_by_sums").items())
    step.left_by_sums[name] = hash.get<std::string>();
  step.norms = line.at("norms").get<std::vector<double>>();
  step.loaded = line.at("loaded").get<std::vector<std::string>>();
  step.loaded_drawn = line.at("loaded_drawn").get<std::vector<std::string>>();
  step.drawn = line.at("drawn").get<std::vector<std::string>>();
  step.misplaced = line.at("misplaced").get<std::vector<std::string>>();
  step.drew = line.at("drew").get<bool>();
  step.loss_draws = line.at("loss_draws").get<std::string>();
  step.sum_scale = line.at("sum_scale").get<double>();
  step.drew_in_step = line.at("drew_in_step").get<bool>();
  step.by_hand = line.at("by_hand").get<bool>();
  step.updates = sketches(line.at("updates"));
  step.standardized = line.at("standardized").get<bool>();
  step.lr = line.at("lr").get<std::vector<double>>();
  step.targets = line.at("targets").get<std::vector<double>>();
  step.copy = whole_number(line.at("copy"));
  step.models_hash = line.at("models_hash").get<std::string>();
  step.hooked = hooked_gradients(line.at("hooked"));
  if (line.contains("comm_hook")) step.comm_hook = hooked_buckets(line.at("comm_hook"));
  step.multiplied = hooked_gradients(line.at("multiplied"));
  step.partly = line.at("partly").get<std::vector<std::string>>();
  step.untrained = line.at("untrained").get<std::string>();
  step.untrained_sketch = sketch_of(line.at("untrained_sketch"));
  step.changed = line.at("changed").get<std::vector<std::string>>();
  step.before = sketches(line.at("before"));
  step.grads = sketches(line.at("grads"));
  step.params = sketches(line.at("params"));
  step.moved = sketches(line.at("moved"));
  return step;
}

bool consistent(const ProgramStep& step) {
  const size_t count = step.names.size();
  return step.grad_hashes.size() == count && step.param_hashes.size() == count &&
         step.grads.size() == count && step.params.size() == count &&
         step.updates.size() == (step.by_hand ? count : 0) &&
         (step.groups.empty() || step.groups.size() == count) &&
         (step.before.empty() || step.before.size() == count) &&
         (step.moved.empty() || step.moved.size() == count);
}

// Of data sets that a DistributedSampler deals to all ranks, by data set and index.
std::map<std::pair<int64_t, int64_t>, std::string> items_of(const Json& list) {
  std::map<std::pair<int64_t, int64_t>, std::string> items;
  for (const Json& item : list)
    items[{whole_number(item.at(0)), whole_number(item.at(1))}] = item.at(2).get<std::string>();
  return items;
}

// As TakeJson.
std::string take(const Json& line, ProgramRank* rank) {
  const std::string kind = line.at("kind").get<std::string>();
  rank->ended = false;  // an end is the last line
  if (kind == "head") {
    rank->rank = whole_number(line.at("rank"));
    rank->world = whole_number(line.at("world"));
  } else if (kind == "step") {
    rank->steps.push_back(program_step_of(line));
    if (!consistent(rank->steps.back())) return "its lists are not of one length";
  } else if (kind == "end") {
    rank->ended = whole_number(line.at("steps")) == static_cast<int64_t>(rank->steps.size());
    rank->summed = line.at("summed").get<bool>();
    rank->dropout = line.at("dropout").get<bool>();
    rank->flat_shards = line.at("flat_shards").get<bool>();
    rank->part = whole_number(line.at("part_of_model").at(0));
    rank->parts = whole_number(line.at("part_of_model").at(1));
    rank->draws = line.at("draws").get<bool>();
    rank->on_cpu = line.at("on_cpu").get<bool>();
    rank->never_updated = line.at("never_updated").get<std::vector<std::string>>();
    rank->compile_off = line.at("compile_off").get<bool>();
    rank->handed = line.at("handed").get<bool>();
    rank->scale_known = line.at("scale_known").get<bool>();
    rank->recomputed = line.at("recomputed").get<bool>();
    rank->compared = line.at("compared").get<bool>();
    rank->why_not_handed = line.at("why_not_handed").get<std::string>();
    rank->comm_hook = printable(line.at("comm_hook").get<std::string>());
    rank->constants = line.at("constants").get<std::string>();
    rank->refused = line.at("refused").get<bool>();
    rank->broadcasts = whole_number(line.at("broadcasts"));
    rank->replicas = whole_number(line.at("replicas"));
    get_exact(line.at("replicas_dealt"), rank->replicas_dealt);
    rank->shuffles = line.at("shuffles").get<std::vector<std::string>>();
    rank->items = items_of(line.at("items"));
    rank->splits = line.at("splits").get<std::vector<std::string>>();
    rank->loss_scales = line.at("loss_scales").get<std::vector<std::string>>();
    rank->padded = whole_number(line.at("padded"));
    rank->batch_norms = whole_number(line.at("batch_norms"));
    rank->backwards = whole_number(line.at("backwards"));
    rank->stale_epochs = whole_number(line.at("stale_epochs"));
  } else if (kind != "begin") {
    return "its kind is unknown";
  }
  return "";
}

}  // namespace

Sketch sketch_of(const Json& list) {
  if (!list.is_array() || list.size() != 5) return std::nullopt;
  for (const Json& value : list)
    if (!value.is_number()) return std::nullopt;
  return list.get<std::vector<double>>();
}

Expected<ProgramRank> read_program_rank(const std::string& path) {
  ProgramRank rank;
  const InputErrors errors = read_json_lines(path, "line of the agent", {kRankBytesMost},
                                             [&](const Json& line) { return take(line, &rank); });
  if (!errors.empty()) return errors;
  if (rank.rank < 0) return file_error(path, "does not say which rank it is of");
  return rank;
}

}  // namespace lockstep
