#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "scenarios/base/phase.h"

namespace lockstep {

// What can go wrong on purpose: a row for each kind, and all that anybody needs to know of it
// without acting it out. The definition "fault" of scenarios/schema.json is made from the rows
// (tests/scenarios/fault_kinds_test.cc), and so are the rows of virtual time
// (sim/des/modelled_keys.cc). What a kind does is in sim/fault.

// In the order of the table.
enum class FaultKind {
  slow,
  imbalance,
  wandering,
  stall,
  periodic_pause,
  slow_layer,
  slow_device,
  launch_stall,
  slow_loader,
  stop,
  kill,
  terminate,
  interrupt,
  segfault,
  abort,
  exception,
  deadlock,
  exit,
  late_start,
  slow_constructor,
  out_of_memory,
  slow_link,
  latency,
  jitter,
  reset,
  half_open,
  partition,
  slow_store,
  other_bucket_cap,
  other_bucket_order,
  skip_collective,
  other_dtype,
  nan,
  unused_parameter,
  other_seed,
  skip_backward,
  fewer_batches,
  duplicate_rank,
  wrong_world_size,
  wrong_address
};

// Misconfigured ranks are wrong in every pass; the others are in the primary run only.
enum class FaultClass { compute, process, network, misconfiguration };

enum class FaultActs {
  each_step,
  once,  // at one moment: at a bucket, or at the begin of a phase, backward where none is given
  once_in_step,  // in one step, and at no moment of it
};

// What ranks must be or have for it.
enum class FaultNeeds {
  nothing,
  device,       // with a stream of work
  processes,    // of their own: the threads of communicator local live and die together
  connections,  // which ranks that share memory have not
};

enum class InVirtualTime {
  counts,
  before_steps,  // left out, for virtual time begins with the first step
  takes_no_time,
  refused
};

// A key of a kind, by the definition of the schema that says what it may be.
struct FaultKey {
  const char* key;
  const char* definition;
  bool required = false;
};

struct FaultRow {
  FaultKind kind;
  const char* word;
  FaultClass of;
  FaultActs acts;
  std::optional<Phase> phase;  // the only one in which it can act
  bool only_delays;            // makes ranks wait, and nothing else
  FaultNeeds needs;
  InVirtualTime in_virtual_time;
  std::vector<FaultKey> keys;
  const char* what;
  std::optional<int> ends_by;  // the signal of which the rank dies; 0: it leaves by an exit code
};
const std::vector<FaultRow>& fault_rows();

const FaultRow& row_of(FaultKind kind);
const char* to_word(FaultKind kind);
const char* to_word(FaultClass of);
std::optional<FaultKind> fault_kind_from(std::string_view word);

// The definition of the schema.
nlohmann::ordered_json fault_schema();

}  // namespace lockstep
