#include "sim/analysis/recorded_calls.h"

#include <algorithm>
#include <map>

#include "reducer/probe.h"

namespace lockstep {
namespace {

// Bytes are those of all ranks together, but where each rank has the whole.
void set_elements(Operation operation, int64_t bytes, int64_t world_size, RecordedCall* call) {
  const int64_t all = bytes / (call->type == nullptr ? 1 : call->type->bytes);
  const int64_t own = all / std::max<int64_t>(1, world_size);
  switch (operation) {
    case Operation::all_reduce:
    case Operation::broadcast:
    case Operation::all_to_all:
      call->elements_in = call->elements_out = all;
      break;
    case Operation::all_gather:
    case Operation::gather:
      call->elements_in = own;
      call->elements_out = all;
      break;
    case Operation::reduce_scatter:
    case Operation::scatter:
      call->elements_in = all;
      call->elements_out = own;
      break;
    case Operation::barrier:
      break;
  }
}

RecordedCall call_of(const Event& arrival, int64_t world_size) {
  const PackedCollective packed = unpack_collective(arrival.value);
  const auto operation = static_cast<Operation>(packed.operation);
  RecordedCall call;
  call.sequence = arrival.sequence;
  call.operation = to_word(operation);
  call.bucket = arrival.subject;
  call.step = arrival.step;
  call.type = element_type_of(packed.dtype);
  call.phase = static_cast<Phase>(arrival.phase);
  call.called_ns = arrival.time_ns;
  set_elements(operation, packed.bytes, world_size, &call);
  return call;
}

}  // namespace

std::vector<RecordedCall> recorded_calls(const RankRecords& records, int64_t world_size) {
  std::map<uint32_t, RecordedCall> calls;
  bool queued = false;
  for (const Event& event : records.events) {
    const auto kind = static_cast<EventKind>(event.kind);
    if (kind == EventKind::double_run) break;
    if (kind == EventKind::arrival && is_operation(unpack_collective(event.value).operation))
      calls[event.sequence] = call_of(event, world_size);
    queued = queued || kind == EventKind::launched;
    const auto call = calls.find(event.sequence);
    if (call == calls.end()) continue;  // its arrival was dropped
    if (kind == EventKind::launched) call->second.started_ns = event.time_ns;
    if (kind == EventKind::end) call->second.ended_ns = event.time_ns;
  }
  std::vector<RecordedCall> found;
  for (auto& [sequence, call] : calls) {
    if (!call.started_ns && (!queued || call.ended_ns)) call.started_ns = call.called_ns;
    found.push_back(std::move(call));
  }
  return found;
}

}  // namespace lockstep
