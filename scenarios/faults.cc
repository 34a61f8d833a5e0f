#include "scenarios/faults.h"

#include <algorithm>
#include <string_view>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

template <size_t N>
bool is_one_of(const std::string& word, const char* const (&words)[N]) {
  return std::any_of(std::begin(words), std::end(words),
                     [&](const char* known) { return word == known; });
}

constexpr const char* kCompute[] = {"slow",      "stall",       "periodic_pause",
                                    "wandering", "slow_layer",  "slow_loader",
                                    "imbalance", "slow_device", "launch_stall"};
constexpr const char* kProcess[] = {"stop",     "kill",       "terminate",        "interrupt",
                                    "segfault", "abort",      "exception",        "deadlock",
                                    "exit",     "late_start", "slow_constructor", "out_of_memory"};
constexpr const char* kNetwork[] = {"slow_link", "latency",   "jitter",    "reset",
                                    "half_open", "partition", "slow_store"};
constexpr const char* kMeaning[] = {
    "other_bucket_cap", "other_bucket_order", "skip_collective", "other_dtype",   "nan",
    "unused_parameter", "other_seed",         "skip_backward",   "fewer_batches", "duplicate_rank",
    "wrong_world_size", "wrong_address"};
constexpr const char* kOnce[] = {
    "stop",     "kill", "terminate", "interrupt", "segfault",  "abort",         "exception",
    "deadlock", "exit", "reset",     "half_open", "partition", "out_of_memory", "skip_backward"};

std::optional<int64_t> integer(const Part& fault, std::string_view key) {
  if (!fault.options.has(key)) return std::nullopt;
  return fault.options.integer(key);
}

}  // namespace

FaultClass class_of(const Part& fault) {
  if (is_one_of(fault.kind, kCompute)) return FaultClass::compute;
  if (is_one_of(fault.kind, kProcess)) return FaultClass::process;
  if (is_one_of(fault.kind, kNetwork)) return FaultClass::network;
  LOCKSTEP_CHECK(is_one_of(fault.kind, kMeaning), "no fault is called " + fault.kind);
  return FaultClass::meaning;
}

std::optional<int64_t> rank_of(const Part& fault) { return integer(fault, "rank"); }

bool acts_on_rank(const Part& fault, int64_t rank) {
  if (fault.kind == "partition") return true;
  return rank_of(fault).value_or(rank) == rank;
}

std::optional<int64_t> bucket_of(const Part& fault) { return integer(fault, "bucket"); }

bool acts_once(const Part& fault) { return is_one_of(fault.kind, kOnce); }

FaultSteps steps_of(const Part& fault, int64_t steps) {
  const std::string phase = phase_of(fault);
  if (phase == "rendezvous" || phase == "construction") return {0, 0};
  if (phase == "teardown") return {steps, steps};
  const auto step = integer(fault, "step");
  if (acts_once(fault)) return {step.value_or(1), step.value_or(1)};
  const auto last = integer(fault, "last_step");
  return {step.value_or(1), last.value_or(step.value_or(steps))};
}

std::string phase_of(const Part& fault) {
  if (fault.kind == "late_start" || fault.kind == "duplicate_rank" ||
      fault.kind == "wrong_world_size" || fault.kind == "wrong_address" ||
      fault.kind == "slow_store")
    return "rendezvous";
  if (fault.kind == "slow_constructor") return "construction";
  if (fault.kind == "slow_loader") return "load";
  if (fault.options.has("phase")) return fault.options.text("phase");
  const bool moment = acts_once(fault) && fault.kind != "skip_backward";
  return moment && !bucket_of(fault) ? "backward" : "";
}

bool only_delays(const Part& fault) {
  static constexpr const char* kDelays[] = {"late_start", "slow_constructor", "slow_link",
                                            "latency",    "jitter",           "slow_store"};
  return class_of(fault) == FaultClass::compute || is_one_of(fault.kind, kDelays) ||
         (fault.kind == "stop" && fault.options.has("duration_ms"));
}

bool by_own_link(const Part& fault) {
  static constexpr const char* kKinds[] = {"slow_link", "half_open", "partition"};
  return is_one_of(fault.kind, kKinds) && fault.options.text("means") != "decorator";
}

const Part* find_fault(const std::vector<Part>& faults, const std::string& kind, int64_t rank) {
  for (const Part& fault : faults)
    if (fault.kind == kind && acts_on_rank(fault, rank)) return &fault;
  return nullptr;
}

}  // namespace lockstep
