#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/part.h"
#include "scenarios/base/phase.h"

namespace lockstep {

// What can go wrong on purpose: a row for each kind, and all that anybody needs to know of it
// without acting it out. The definition "fault" of scenarios/schema.json is made from the rows
// (scenarios/scenario_schema.cc), and so are the rows of virtual time
// (sim/des/modelled.cc). What a kind does is in sim/fault.

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
  mismatched_bucket_cap,
  mismatched_bucket_order,
  skip_collective,
  mismatched_dtype,
  nan,
  unused_parameter,
  mismatched_seed,
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
  std::optional<int> ends_by = {};  // the signal of which a rank dies; 0: it leaves by an exit code
};
const std::vector<FaultRow>& fault_rows();

const FaultRow& row_of(FaultKind kind);
const char* to_word(FaultKind kind);
const char* to_word(FaultClass of);
std::optional<FaultKind> fault_kind_from(std::string_view word);

// The definition of the schema.
nlohmann::ordered_json fault_schema();

// What goes wrong on purpose (docs/faults.md): a kind, an address, and the kind's options, which
// the schema has checked.
struct Fault {
  FaultKind kind{};
  Options options;
  bool operator==(const Fault&) const = default;
};

inline FaultClass class_of(const Fault& fault) { return row_of(fault.kind).of; }

// Absent: all ranks. Of kind partition the ranks of one side are in `ranks` instead.
std::optional<int64_t> rank_of(const Fault& fault);
bool acts_on_rank(const Fault& fault, int64_t rank);  // whatever the step
std::optional<int64_t> bucket_of(const Fault& fault);

// The first and the last step in which it may act, of a run of `steps`. Process faults act once, in
// `step` or the first one; so do the kinds of the network that last for good. 0: before the steps.
struct FaultSteps {
  int64_t first = 1, last = 1;
};
FaultSteps steps_of(const Fault& fault, int64_t steps);

// Does it act at one moment only, from which there may be no way back?
bool acts_once(const Fault& fault);

// The phase at whose beginning it acts; none for kinds that act elsewhere (in a collective, in a
// layer, in options of the rank).
std::optional<Phase> phase_of(const Fault& fault);

// Is this its only effect: that ranks wait? Such a fault changes no bit, and no run fails by it
// unless a time-out passes.
bool only_delays(const Fault& fault);

// Does the kernel limit or lose what the rank sends (`means`)? veth, or auto where it can.
bool by_own_link(const Fault& fault);

// The fault of `kind` that acts on this rank, or null.
const Fault* find_fault(const std::vector<Fault>& faults, FaultKind kind, int64_t rank);

}  // namespace lockstep
