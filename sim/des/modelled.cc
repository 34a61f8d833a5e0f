#include "sim/des/modelled.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>

#include "scenarios/faults.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool is_index(const std::string& token) {
  return !token.empty() && std::all_of(token.begin(), token.end(),
                                       [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "/faults/3/kind" -> "/faults/*/kind".
std::string pattern_of(const std::string& pointer) {
  std::string pattern;
  for (size_t at = 0; at < pointer.size();) {
    const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    const std::string token = pointer.substr(at + 1, end - at - 1);
    pattern += "/" + (is_index(token) ? "*" : token);
    at = end;
  }
  return pattern;
}

bool covers(const ModelledKey& row, const std::string& pattern) {
  const std::string known = row.pointer;
  if (known == pattern) return true;
  return known.ends_with("/**") && pattern.starts_with(known.substr(0, known.size() - 2));
}

bool takes(const ModelledKey& row, const std::string& value) {
  return row.values.empty() || std::any_of(row.values.begin(), row.values.end(),
                                           [&](const char* known) { return value == known; });
}

std::string allowed_at(const std::string& pattern) {
  std::string allowed;
  for (const ModelledKey& row : modelled_keys()) {
    if (row.counts == Counts::refused || !covers(row, pattern)) continue;
    for (const char* value : row.values)
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", value);
  }
  return allowed.empty() ? "none" : allowed;
}

class Reader {
 public:
  explicit Reader(std::vector<std::string>* notes) : notes_(notes) {}

  void read(const Json& value, const std::string& pointer) {
    const bool is_list = value.is_array() && !value.empty() && value.front().is_structured();
    if (!value.is_object() && !is_list) return read_value(value, pointer);
    // A part of a kind that is not let in is one error, whatever else it says.
    if (value.contains("kind") && is_refused(value["kind"], pointer + "/kind"))
      return refuse(pointer + "/kind", value["kind"]);
    size_t index = 0;
    for (const auto& [key, member] : value.items())
      read(member, pointer + "/" + (is_list ? std::to_string(index++) : key));
  }

  InputErrors errors;

 private:
  static bool is_refused(const Json& value, const std::string& pointer) {
    const ModelledKey* row = row_for(pointer, text_of(value));
    return row == nullptr || row->counts == Counts::refused;
  }
  void read_value(const Json& value, const std::string& pointer) {
    if (value.is_array() && value.empty()) return;
    if (is_refused(value, pointer)) return refuse(pointer, value);
    const ModelledKey* row = row_for(pointer, text_of(value));
    if (row->counts == Counts::left_out)
      notes_->push_back(fmt::format("{} {}: {}", row->subject, text_of(value), row->why));
  }
  void refuse(const std::string& pointer, const Json& value) {
    const std::string pattern = pattern_of(pointer);
    std::string subject = pointer;
    for (const ModelledKey& row : modelled_keys())
      if (covers(row, pattern) && row.subject[0] != '\0') subject = row.subject;
    InputError error;
    error.pointer = pointer;
    error.message = fmt::format("{} {} cannot be simulated", subject, value.dump());
    error.allowed = allowed_at(pattern);
    errors.push_back(std::move(error));
  }

  std::vector<std::string>* notes_;
};

std::string values_text(const ModelledKey& row) {
  std::string text;
  for (const char* value : row.values)
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", value);
  return text.empty() ? "any" : text;
}

}  // namespace

const char* to_word(Counts counts) {
  switch (counts) {
    case Counts::time:
      return "counts";
    case Counts::nothing:
      return "no effect";
    case Counts::left_out:
      return "left out, with a note";
    case Counts::refused:
      return "refused";
  }
  return "";
}

const ModelledKey* row_for(const std::string& pointer, const std::string& value) {
  const std::string pattern = pattern_of(pointer);
  bool is_named = false;
  for (const ModelledKey& row : modelled_keys()) {
    if (row.pointer != pattern) continue;
    if (takes(row, value)) return &row;
    is_named = true;
  }
  if (is_named) return nullptr;
  const ModelledKey* found = nullptr;  // the longest that covers it
  for (const ModelledKey& row : modelled_keys()) {
    if (row.pointer == pattern || !covers(row, pattern) || !takes(row, value)) continue;
    if (found == nullptr || std::string(row.pointer).size() > std::string(found->pointer).size())
      found = &row;
  }
  return found;
}

InputErrors not_modelled(const Scenario& scenario, std::vector<std::string>* notes) {
  Reader reader(notes);
  reader.read(as_json(scenario), "");
  return reader.errors;
}

std::string modelled_markdown() {
  std::string text = "| key | values | in virtual time | |\n| --- | --- | --- | --- |\n";
  for (const ModelledKey& row : modelled_keys())
    text += fmt::format("| `{}` | {} | {} | {} |\n", row.pointer, values_text(row),
                        to_word(row.counts), row.why);
  return text;
}

// The table of sim/des/modelled.h, in the order of a scenario's keys.
namespace {

constexpr const char* kComputeIsGiven = "compute takes its given time";
constexpr const char* kOptimizerIsGiven = "an update takes `optimizer_ms` of the machine";
constexpr const char* kNoValues = "no value is computed";
constexpr const char* kJudges = "read when a run is judged";
constexpr const char* kOfARefusedKind = "belongs to a refused kind";
constexpr const char* kExtraCollectives = "adds its own collectives";

std::vector<const char*> faults(InVirtualTime wanted) {
  std::vector<const char*> words;
  for (const FaultRow& row : fault_rows())
    if (row.in_virtual_time == wanted) words.push_back(row.word);
  return words;
}

}  // namespace

const std::vector<ModelledKey>& modelled_keys() {
  using enum Counts;
  static const std::vector<ModelledKey> kKeys = {
      {"/name", "", {}, nothing, "a name"},
      {"/what", "", {}, nothing, "a description"},
      {"/seed", "", {}, time, "draws of faults and of noise"},
      {"/world_size", "", {}, time, "ranks"},
      {"/steps", "", {}, time, "steps"},
      {"/batch_size", "", {}, nothing, "times apply to a pass's planned samples"},
      {"/dtype", "", {}, time, "bytes of gradients"},
      {"/device", "device", {"cpu", "fake"}, nothing, kComputeIsGiven},
      {"/device", "device", {"cuda", "auto"}, refused, "copies to and from a device are not known"},
      {"/golden_device", "", {}, nothing, "there is no golden run"},
      {"/devices_per_rank", "devices_per_rank", {"1"}, nothing, "a model on one device"},
      {"/devices_per_rank", "devices_per_rank", {}, refused, "copies between devices"},
      {"/streams", "streams", {"in_order"}, nothing, "no streams"},
      {"/streams",
       "streams",
       {"late"},
       refused,
       "which operations are late in a stream is not known"},
      {"/device_ids", "", {}, nothing, "a name for a device"},
      {"/threads", "", {}, nothing, kComputeIsGiven},
      {"/rng", "", {}, nothing, kNoValues},
      {"/rank_seeds", "", {}, nothing, kNoValues},
      {"/zero_grad", "", {}, nothing, kNoValues},
      {"/requantize", "", {}, nothing, kNoValues},
      {"/compare_every", "", {}, nothing, "comparisons come after a step and do not count"},
      {"/accumulate_steps", "", {}, time, "passes of a step"},
      {"/accumulate_sync", "", {}, time, "passes that communicate"},
      {"/frozen", "", {}, time, "parameters without gradients"},
      {"/ignored", "", {}, time, "parameters without buckets"},
      {"/wrapped_modules", "wrapped_modules", {}, refused, "a reducer for each module"},
      {"/averaging", "averaging", {"mean"}, nothing, "all ranks have equally many samples"},
      {"/averaging",
       "averaging",
       {"sample_weighted"},
       refused,
       "ranks with fewer samples take less time, and send their number"},
      {"/model/kind",
       "model",
       {"linear",
        "mlp",
        "autoencoder",
        "batch_norm_mlp",
        "branches",
        "two_heads",
        "sized_layers",
        "mnist_convnet",
        "cifar_cnn",
        "resnet18",
        "resnet50",
        "resnet101",
        "resnet152",
        "resnext50_32x4d",
        "resnext101_32x8d",
        "vgg16",
        "alexnet",
        "inception_v3",
        "bert",
        "embedding",
        "gpt",
        "parameters"},
       time,
       "bytes, and the order in which gradients become ready"},
      {"/model/kind", "model", {"torchscript", "registered"}, refused, "its layers are not known"},
      {"/model/in_features", "", {}, time, "bytes"},
      {"/model/out_features", "", {}, time, "bytes"},
      {"/model/features", "", {}, time, "bytes"},
      {"/model/aux_logits", "", {}, time, "bytes"},
      {"/model/hidden", "", {}, time, "bytes"},
      {"/model/sizes", "", {}, time, "bytes"},
      {"/model/parameters", "", {}, time, "bytes"},
      {"/model/classes", "", {}, time, "bytes"},
      {"/model/width", "", {}, time, "bytes"},
      {"/model/vocabulary", "", {}, time, "bytes"},
      {"/model/context", "", {}, time, "bytes"},
      {"/model/layers", "", {}, time, "bytes"},
      {"/model/heads", "", {}, nothing, "the same bytes in other shapes"},
      {"/model/bias", "", {}, time, "bytes"},
      {"/model/register", "", {}, time, "which parameters share a bucket"},
      {"/model/activation", "", {}, nothing, kComputeIsGiven},
      {"/model/dropout", "", {}, nothing, kComputeIsGiven},
      {"/model/memory_format", "", {}, nothing, "the same bytes in another order"},
      {"/model/norm", "norm", {"batch", "frozen", "group"}, nothing, kComputeIsGiven},
      {"/model/norm", "norm", {"sync", "sync_equal"}, refused, kExtraCollectives},
      {"/model/checkpointing", "checkpointing", {"none"}, nothing, "nothing is computed twice"},
      {"/model/checkpointing",
       "checkpointing",
       {"reentrant", "non_reentrant"},
       refused,
       "when gradients are ready where layers are computed twice is not known"},
      {"/model/sparse", "sparse gradients:", {"false"}, nothing, "dense gradients"},
      {"/model/sparse", "sparse gradients:", {"true"}, refused, kExtraCollectives},
      {"/model/unused", "unused parameters:", {"none"}, nothing, "every gradient becomes ready"},
      {"/model/unused", "unused parameters:", {}, refused, "which gradients come is not known"},
      {"/model/first", "first branch:", {"left"}, nothing, "one order of gradients on all ranks"},
      {"/model/first", "first branch:", {}, refused, "the order of gradients depends on samples"},
      {"/model/repeat", "repeat:", {"1"}, nothing, "every gradient becomes ready once"},
      {"/model/repeat", "repeat:", {}, refused, "layers that are computed several times"},
      {"/model/container", "", {}, nothing, "how outputs are handed over"},
      {"/model/returned", "returned heads:", {"both"}, nothing, "every gradient becomes ready"},
      {"/model/returned", "returned heads:", {}, refused, "which gradients come is not known"},
      {"/model/in_loss", "heads in the loss:", {"both"}, nothing, "every gradient becomes ready"},
      {"/model/in_loss", "heads in the loss:", {}, refused, "which gradients come is not known"},
      {"/model/float64_layers", "float64_layers", {}, refused, "buckets of another dtype"},
      {"/model/file", "", {}, nothing, kOfARefusedKind},
      {"/model/name", "", {}, nothing, kOfARefusedKind},
      {"/model/options/**", "", {}, nothing, kOfARefusedKind},
      {"/data/workers", "data workers:", {"0"}, nothing, "loading is `load_ms` of the machine"},
      {"/data/workers", "data workers:", {}, refused, "batches that are prepared ahead"},
      {"/data/**", "", {}, nothing, "loading is `load_ms` of the machine"},
      {"/split/kind", "split", {"contiguous"}, nothing, "all ranks have equally many samples"},
      {"/split/kind",
       "split",
       {"distributed", "libtorch_random", "libtorch_sequential"},
       left_out,
       "a short last batch of an epoch takes as long as a full one"},
      {"/split/kind", "split", {"manual"}, refused, kExtraCollectives},
      {"/split/batches_per_rank/**",
       "batches_per_rank",
       {},
       refused,
       "ranks that run out of batches"},
      {"/split/batches_per_rank", "batches_per_rank", {}, refused, "ranks that run out of batches"},
      {"/split/**", "", {}, nothing, "which samples, not how many"},
      {"/loss/report_every", "report_every", {"0"}, nothing, "no loss is reported"},
      {"/loss/report_every",
       "report_every",
       {},
       left_out,
       "collectives that report the loss are left out"},
      {"/loss/**", "", {}, nothing, kComputeIsGiven},
      {"/optimizer/**", "", {}, nothing, kOptimizerIsGiven},
      {"/optimizer_sharding/kind",
       "optimizer sharding",
       {"none"},
       nothing,
       "each rank updates all"},
      {"/optimizer_sharding/kind", "optimizer sharding", {}, refused, kExtraCollectives},
      {"/optimizer_sharding/**", "optimizer sharding", {}, refused, kExtraCollectives},
      {"/reducer/kind",
       "reducer",
       {"bucketed", "c10d", "flat", "per_parameter", "manual", "invariant", "fsdp"},
       time,
       "buckets, and when they are launched; of fsdp units, and when they are gathered"},
      {"/reducer/kind",
       "reducer",
       {"sharded", "data_parallel", "none", "registered"},
       refused,
       "its collectives are not known"},
      {"/reducer/bucket_cap_mb", "", {}, time, "buckets from step 2 on"},
      {"/reducer/first_bucket_mb", "", {}, time, "the first bucket"},
      {"/reducer/gradient_as_bucket_view",
       "",
       {},
       time,
       "are gradients copied into buckets (`copy_mb_per_s` of the machine)?"},
      {"/reducer/write_back", "", {}, nothing, "part of `optimizer_ms` of the machine"},
      {"/reducer/broadcast_buffers",
       "",
       {},
       nothing,
       "broadcasts of buffers are left out, with a note where the model has any"},
      {"/reducer/find_unused_parameters", "", {"false"}, nothing, "no search"},
      {"/reducer/find_unused_parameters",
       "find_unused_parameters",
       {"true"},
       left_out,
       "the collective that exchanges unused parameters is left out"},
      {"/reducer/static_graph", "", {"false"}, nothing, "no search"},
      {"/reducer/static_graph",
       "static_graph",
       {"true"},
       left_out,
       "the collective that exchanges unused parameters is left out"},
      {"/reducer/buffer_hook", "buffer hook", {"none"}, nothing, "no buffers are averaged"},
      {"/reducer/buffer_hook", "buffer hook", {}, refused, kExtraCollectives},
      {"/reducer/average_ignored", "average_ignored", {"false"}, nothing, "they stay apart"},
      {"/reducer/average_ignored", "average_ignored", {"true"}, refused, kExtraCollectives},
      {"/reducer/virtual_shards", "", {}, time, "passes of a step, and what ranks exchange"},
      {"/reducer/reshard_after_forward", "", {}, time, "are parameters gathered for backward too?"},
      {"/reducer/prefetch", "", {}, time, "when units are gathered"},
      {"/reducer/shard_ranks", "", {}, time, "which ranks hold a copy, and what copies exchange"},
      {"/reducer/gather_dtype", "", {}, time, "bytes of gathered parameters"},
      {"/reducer/reduce_dtype", "", {}, time, "bytes of reduced gradients"},
      {"/reducer/name", "", {}, nothing, kOfARefusedKind},
      {"/reducer/same_bits_as", "", {}, nothing, kOfARefusedKind},
      {"/reducer/options/**", "", {}, nothing, kOfARefusedKind},
      {"/communicator/kind", "communicator", {"gloo", "c10d"}, nothing, "both are Gloo over TCP"},
      {"/communicator/kind",
       "communicator",
       {"shm", "hierarchical", "local", "nccl"},
       refused,
       "costs are unknown: link costs are Gloo's"},
      {"/communicator/algorithm",
       "algorithm",
       {"ring", "bcube", "halving_doubling"},
       time,
       "rounds and bytes of a collective"},
      {"/communicator/algorithm",
       "algorithm",
       {"ring_chunked", "rank_order"},
       refused,
       "its rounds are not known"},
      {"/communicator/ranks_per_host",
       "communicator's ranks_per_host",
       {},
       refused,
       "--ranks-per-host defines the hosts of a machine"},
      {"/lr_schedule/**", "", {}, nothing, kNoValues},
      {"/clipping/**", "", {}, nothing, kOptimizerIsGiven},
      {"/loss_scaling/**", "", {}, nothing, kOptimizerIsGiven},
      {"/comm_hook/kind", "comm hook", {"none", "allreduce"}, nothing, "all bytes are sent"},
      {"/comm_hook/kind",
       "comm hook",
       {"fp16", "bf16", "post_local_sgd"},
       time,
       "half of the bytes, or none"},
      {"/comm_hook/kind",
       "comm hook",
       {"powersgd", "registered"},
       refused,
       "what it sends is not known"},
      {"/comm_hook/start_step", "", {}, time, "of post_local_sgd: the first step without buckets"},
      {"/comm_hook/rank", "", {}, nothing, kOfARefusedKind},
      {"/comm_hook/error_feedback", "", {}, nothing, kOfARefusedKind},
      {"/comm_hook/name", "", {}, nothing, kOfARefusedKind},
      {"/comm_hook/error", "", {}, nothing, kNoValues},
      {"/comm_hook/owed", "", {}, nothing, kNoValues},
      {"/model_averaging/kind", "", {}, time, "an all-reduce of the parameters"},
      {"/model_averaging/period", "", {}, time, "steps between two of them"},
      {"/model_averaging/warmup_steps", "", {}, time, "steps before the first"},
      {"/checkpoint/kind", "checkpoint", {"none"}, nothing, "nothing is saved"},
      {"/checkpoint/kind", "checkpoint", {}, refused, "what saving takes is not known"},
      {"/checkpoint/**", "checkpoint", {}, refused, "what saving and loading take is not known"},
      {"/join/**", "join", {}, refused, kExtraCollectives},
      {"/compute/kind", "", {}, time, "real: needs times of a machine, or --backward-ms"},
      {"/compute/forward_ms", "", {}, time, "a forward"},
      {"/compute/backward_ms", "", {}, time, "a backward"},
      {"/compute/profile", "", {}, time, "times of layers"},
      {"/time_scale", "", {}, time, "time-outs, faults and emulated compute"},
      {"/timeouts/collective_ms", "", {}, time, "ends a run whose collective takes longer"},
      {"/timeouts/construction_ms", "", {}, nothing, "virtual time begins with the first step"},
      {"/timeouts/rendezvous_ms", "", {}, nothing, "virtual time begins with the first step"},
      {"/timeouts/step_ms", "", {}, nothing, "a note reports a longer step"},
      {"/timeouts/run_ms", "", {}, nothing, "a note reports a longer run"},
      {"/lanes", "", {}, nothing, kNoValues},
      {"/common_checks", "", {}, nothing, kNoValues},
      {"/golden", "", {}, nothing, kNoValues},
      {"/expect/**", "", {}, nothing, kJudges},
      {"/faults/*/kind", "fault", faults(InVirtualTime::counts), time,
       "delays a rank, ends it, or limits what it sends"},
      {"/faults/*/kind", "fault", faults(InVirtualTime::before_steps), left_out,
       "acts before the steps: left out"},
      {"/faults/*/kind", "fault", faults(InVirtualTime::takes_no_time), left_out,
       "changes no time: left out"},
      {"/faults/*/kind", "fault", faults(InVirtualTime::refused), refused,
       "concern connections or configuration, or take an unknown time"},
      {"/faults/*/rank", "", {}, time, "which rank is late, or ends"},
      {"/faults/*/step", "", {}, time, "when"},
      {"/faults/*/last_step", "", {}, time, "until when"},
      {"/faults/*/phase",
       "a fault in phase",
       {"load", "forward", "backward", "wait", "optimizer"},
       time,
       "where in a step"},
      {"/faults/*/phase",
       "a fault in phase",
       {"rendezvous", "construction", "teardown"},
       refused,
       "virtual time covers only the steps"},
      {"/faults/*/bucket", "", {}, time, "where in a step"},
      {"/faults/*/layer", "", {}, time, "where in backward"},
      {"/faults/*/duration_ms", "", {}, time, "how long"},
      {"/faults/*/distribution", "", {}, time, "how long"},
      {"/faults/*/spread", "", {}, time, "how long"},
      {"/faults/*/probability", "", {}, time, "how often"},
      {"/faults/*/every_steps", "", {}, time, "how often"},
      {"/faults/*/factor", "", {}, time, "how many times as long compute takes"},
      {"/faults/*/bandwidth_mb_per_s", "", {}, time, "what a rank sends at most"},
      {"/faults/*/code", "", {}, nothing, "the reported exit code"},
      {"/faults/*/means",
       "",
       {},
       nothing,
       "how a real run is slowed; here as by its decorator, which adds time"},
      {"/faults/*/tensor", "", {}, nothing, kNoValues},
      {"/faults/**", "fault", {}, refused, "belongs to a refused kind"},
      {"/mutants/**", "mutant", {}, refused, "the effect of a defect on time is not known"},
  };
  return kKeys;
}

}  // namespace lockstep
