#include "scenarios/faults.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <string_view>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<FaultKey>;

constexpr FaultKey kRank{"rank", "fault_rank"};
constexpr FaultKey kFactor{"factor", "fault_factor"};
constexpr FaultKey kEvery{"every_steps", "fault_every_steps"};
constexpr FaultKey kStep{"step", "fault_step"};
constexpr FaultKey kPhase{"phase", "fault_step_phase"};
constexpr FaultKey kBucket{"bucket", "fault_bucket"};
constexpr FaultKey kTensor{"tensor", "fault_tensor"};
constexpr FaultKey kMeans{"means", "fault_network_means"};
constexpr FaultKey kProbability{"probability", "fault_probability"};

FaultKey required(FaultKey key) {
  key.required = true;
  return key;
}

Keys operator+(Keys keys, const Keys& others) {
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

std::vector<FaultRow> make_rows() {
  using enum FaultClass;
  using enum FaultActs;
  using enum FaultNeeds;
  using enum InVirtualTime;
  using K = FaultKind;
  const auto no = std::nullopt;
  const Keys one = {required(kRank)}, steps = {kStep, {"last_step", "fault_last_step"}};
  const Keys drawn = {required({"duration_ms", "fault_duration_ms"}),
                      {"distribution", "fault_distribution"},
                      {"spread", "fault_spread"},
                      kProbability};
  const Keys moment = {kStep, {"phase", "fault_phase"}, kBucket};
  const Keys any = Keys{kRank} + steps, paused = any + drawn, before = Keys{kRank} + drawn;
  const Keys ends = one + moment;
  return {
      // kind, word, class, acts, phase, only delays, needs, in virtual time, keys, what it does,
      // ends by
      {K::slow, "slow", compute, each_step, no, true, nothing, counts,
       any + Keys{required(kFactor), {"means", "fault_slow_means"}},
       "forward and backward take `factor` times as long"},
      {K::imbalance, "imbalance", compute, each_step, no, true, nothing, counts,
       one + steps + Keys{required(kFactor)}, "more work, as with a larger shard"},
      {K::wandering, "wandering", compute, each_step, no, true, nothing, counts,
       steps + Keys{required(kFactor), required(kEvery)},
       "slow, on a different rank every `every_steps` steps"},
      {K::stall, "stall", compute, each_step, no, true, nothing, counts, any + Keys{kPhase} + drawn,
       "a pause in a phase"},
      {K::periodic_pause, "periodic_pause", compute, each_step, no, true, nothing, counts,
       any + Keys{kPhase, required(kEvery)} + drawn,
       "a pause every `every_steps` steps, like a garbage collection"},
      {K::slow_layer, "slow_layer", compute, each_step, no, true, nothing, counts,
       any + Keys{required({"layer", "fault_layer"})} + drawn,
       "a pause in the backward of one layer"},
      {K::slow_device, "slow_device", compute, each_step, no, true, device, refused,
       any + Keys{{"matmuls", "fault_matmuls"}, {"size", "fault_size"}, kProbability},
       "more work in the stream of the rank's device, before backward"},
      {K::launch_stall, "launch_stall", compute, each_step, no, true, device, counts, paused,
       "the host pauses in the backward of every layer"},
      {K::slow_loader, "slow_loader", compute, each_step, Phase::load, true, nothing, counts,
       paused, "a pause before each batch"},

      {K::stop, "stop", process, once, no, false, processes, counts,
       ends + Keys{{"duration_ms", "fault_duration_ms"}},
       "SIGSTOP, then SIGCONT after `duration_ms`, if given"},
      {K::kill, "kill", process, once, no, false, processes, counts, ends, "death by SIGKILL",
       SIGKILL},
      {K::terminate, "terminate", process, once, no, false, processes, counts, ends,
       "death by SIGTERM", SIGTERM},
      {K::interrupt, "interrupt", process, once, no, false, processes, counts, ends,
       "death by SIGINT", SIGINT},
      {K::segfault, "segfault", process, once, no, false, processes, counts, ends,
       "death by SIGSEGV", SIGSEGV},
      {K::abort, "abort", process, once, no, false, processes, counts, ends, "death by SIGABRT",
       SIGABRT},
      {K::exception, "exception", process, once, no, false, nothing, counts, ends,
       "an exception is thrown", 0},
      {K::deadlock, "deadlock", process, once, no, false, processes, counts, ends,
       "alive, but never continues"},
      {K::exit, "exit", process, once, no, false, processes, counts,
       ends + Keys{{"code", "fault_code"}}, "the process ends with an exit code", 0},
      {K::late_start, "late_start", process, each_step, Phase::rendezvous, true, nothing,
       before_steps, before, "a pause before the rendezvous"},
      {K::slow_constructor, "slow_constructor", process, each_step, Phase::construction, true,
       nothing, before_steps, before, "a pause before the reducer is built"},
      {K::out_of_memory, "out_of_memory", process, once, no, false, processes, counts, ends,
       "allocations fail, by a limit on the address space", 0},

      {K::slow_link, "slow_link", network, each_step, no, true, nothing, counts,
       any + Keys{required({"bandwidth_mb_per_s", "fault_bandwidth_mb_per_s"}), kMeans},
       "`rank`, or every rank, sends at most this many MB/s"},
      {K::latency, "latency", network, each_step, no, true, nothing, counts, paused,
       "a delay before each collective"},
      {K::jitter, "jitter", network, each_step, no, true, nothing, counts, paused,
       "a delay before each collective, usually drawn"},
      {K::reset, "reset", network, once, no, false, connections, refused, ends,
       "the rank's connections are closed"},
      {K::half_open, "half_open", network, once, no, false, nothing, refused, ends + Keys{kMeans},
       "what the rank sends is lost, silently"},
      {K::partition, "partition", network, once, no, false, nothing, refused,
       Keys{required({"ranks", "fault_ranks"})} + moment + Keys{kMeans},
       "nothing passes between `ranks` and the others"},
      {K::slow_store, "slow_store", network, each_step, Phase::rendezvous, true, processes,
       before_steps, before, "a delay of each access to the rendezvous store"},

      {K::mismatched_bucket_cap, "mismatched_bucket_cap", misconfiguration, each_step, no, false,
       nothing, refused, one + Keys{required({"bucket_cap_mb", "fault_bucket_cap_mb"})},
       "the rank has a different bucket cap"},
      {K::mismatched_bucket_order, "mismatched_bucket_order", misconfiguration, each_step, no,
       false, nothing, refused, one, "the rank has its buckets in another order"},
      {K::skip_collective, "skip_collective", misconfiguration, each_step, no, false, nothing,
       refused, one + Keys{kStep, kBucket}, "the rank skips the collective of `bucket`"},
      {K::mismatched_dtype, "mismatched_dtype", misconfiguration, each_step, no, false, nothing,
       refused, one + Keys{{"dtype", "fault_dtype"}}, "the rank trains in another dtype"},
      {K::nan, "nan", misconfiguration, each_step, no, false, nothing, takes_no_time,
       one + Keys{kStep, kTensor}, "a gradient of the rank is NaN"},
      {K::unused_parameter, "unused_parameter", misconfiguration, each_step, no, false, nothing,
       refused, one + Keys{kStep, kTensor}, "the rank's forward leaves one parameter out"},
      {K::mismatched_seed, "mismatched_seed", misconfiguration, each_step, no, false, nothing,
       takes_no_time, one, "the rank draws its samples from another seed"},
      {K::skip_backward, "skip_backward", misconfiguration, once_in_step, no, false, nothing,
       refused, one + Keys{kStep}, "the rank leaves the backward of a step out"},
      {K::fewer_batches, "fewer_batches", misconfiguration, each_step, no, false, nothing, refused,
       one + Keys{{"batches", "fault_batches"}}, "the rank ends that many steps early"},
      {K::duplicate_rank, "duplicate_rank", misconfiguration, each_step, Phase::rendezvous, false,
       processes, refused, one + Keys{required({"as_rank", "fault_as_rank"})},
       "the rank says that it is another"},
      {K::wrong_world_size, "wrong_world_size", misconfiguration, each_step, Phase::rendezvous,
       false, processes, refused, one + Keys{required({"world_size", "fault_world_size"})},
       "the rank expects another number of ranks"},
      {K::wrong_address, "wrong_address", misconfiguration, each_step, Phase::rendezvous, false,
       connections, refused, one, "the rank advertises an address at which nothing listens"},
  };
}

const std::vector<FaultRow>& rows() {
  static const std::vector<FaultRow> kRows = make_rows();
  return kRows;
}

// All keys, so that one that another kind has is refused with its name.
Json branch(const FaultRow& row) {
  Json properties = {{"kind", {{"const", row.word}}}};
  Json needed = Json::array();
  for (const FaultKey& key : row.keys) {
    properties[key.key] = {{"$ref", fmt::format("#/definitions/{}", key.definition)}};
    if (key.required) needed.push_back(key.key);
  }
  Json then = {{"properties", properties}};
  if (!needed.empty()) then["required"] = needed;
  then["additionalProperties"] = false;
  const Json is_kind = {{"properties", {{"kind", {{"const", row.word}}}}},
                        {"required", Json::array({"kind"})}};
  return {{"if", is_kind}, {"then", then}};
}

}  // namespace

const std::vector<FaultRow>& fault_rows() {
  const auto& all = rows();
  for (size_t i = 0; i < all.size(); ++i)
    LOCKSTEP_CHECK(all[i].kind == static_cast<FaultKind>(i), "a fault stands at another's place");
  return all;
}

const FaultRow& row_of(FaultKind kind) { return rows()[static_cast<size_t>(kind)]; }

const char* to_word(FaultKind kind) { return row_of(kind).word; }

const char* to_word(FaultClass of) {
  switch (of) {
    case FaultClass::compute:
      return "compute";
    case FaultClass::process:
      return "process";
    case FaultClass::network:
      return "network";
    case FaultClass::misconfiguration:
      return "misconfiguration";
  }
  return "?";
}

std::optional<FaultKind> fault_kind_from(std::string_view word) {
  for (const FaultRow& row : rows())
    if (word == row.word) return row.kind;
  return std::nullopt;
}

Json fault_schema() {
  std::string description;
  Json words = Json::array(), branches = Json::array();
  for (const FaultRow& row : fault_rows()) {
    if (words.empty() || row.of != row_of(static_cast<FaultKind>(words.size() - 1)).of) {
      std::string name = to_word(row.of);
      name[0] = static_cast<char>(name[0] - 'a' + 'A');
      description += fmt::format("{}{}:", description.empty() ? "" : " ", name);
    }
    description += fmt::format(" {}: {}.", row.word, row.what);
    words.push_back(row.word);
    branches.push_back(branch(row));
  }
  return {{"type", "object"},
          {"required", Json::array({"kind"})},
          {"properties",
           {{"kind", {{"description", description}, {"type", "string"}, {"enum", words}}}}},
          {"allOf", branches}};
}

namespace {

std::optional<int64_t> integer(const Fault& fault, std::string_view key) {
  if (!fault.options.has(key)) return std::nullopt;
  return fault.options.integer(key);
}

}  // namespace

std::optional<int64_t> rank_of(const Fault& fault) { return integer(fault, "rank"); }

bool acts_on_rank(const Fault& fault, int64_t rank) {
  if (fault.kind == FaultKind::partition) return true;
  return rank_of(fault).value_or(rank) == rank;
}

std::optional<int64_t> bucket_of(const Fault& fault) { return integer(fault, "bucket"); }

bool acts_once(const Fault& fault) { return row_of(fault.kind).acts != FaultActs::each_step; }

FaultSteps steps_of(const Fault& fault, int64_t steps) {
  const auto phase = phase_of(fault);
  if (phase == Phase::rendezvous || phase == Phase::construction) return {0, 0};
  if (phase == Phase::teardown) return {steps, steps};
  const auto step = integer(fault, "step");
  if (acts_once(fault)) return {step.value_or(1), step.value_or(1)};
  const auto last = integer(fault, "last_step");
  return {step.value_or(1), last.value_or(step.value_or(steps))};
}

std::optional<Phase> phase_of(const Fault& fault) {
  const FaultRow& row = row_of(fault.kind);
  if (row.phase) return row.phase;
  if (fault.options.has("phase")) return phase_from(fault.options.text("phase"));
  if (row.acts == FaultActs::once && !bucket_of(fault)) return Phase::backward;
  return std::nullopt;
}

bool only_delays(const Fault& fault) {
  return row_of(fault.kind).only_delays ||
         (fault.kind == FaultKind::stop && fault.options.has("duration_ms"));
}

bool by_own_link(const Fault& fault) {
  return class_of(fault) == FaultClass::network && fault.options.has("means") &&
         fault.options.text("means") != "decorator";
}

const Fault* find_fault(const std::vector<Fault>& faults, FaultKind kind, int64_t rank) {
  for (const Fault& fault : faults)
    if (fault.kind == kind && acts_on_rank(fault, rank)) return &fault;
  return nullptr;
}

}  // namespace lockstep
