#include "sim/analysis/recorded_calls.h"

#include <algorithm>
#include <map>
#include <utility>

#include "reducer/probe.h"

namespace lockstep {
namespace {

constexpr auto kReduce = static_cast<uint8_t>(static_cast<uint8_t>(Operation::all_to_all) + 1);

// Bytes are those of all ranks together, but where each rank has the whole.
void set_elements(uint8_t operation, int64_t all, int64_t ranks, RecordedCall* call) {
  const int64_t own = all / std::max<int64_t>(1, ranks);
  switch (static_cast<Operation>(operation)) {
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

// Bytes are what this rank gave: of a broadcast or a scatter that may be nothing, where it is not
// the source.
void set_own_elements(uint8_t operation, int64_t given, int64_t ranks, RecordedCall* call) {
  const int64_t count = std::max<int64_t>(1, ranks);
  call->elements_in = given;
  call->elements_out = std::nullopt;
  if (operation == kReduce) call->elements_out = given;
  switch (static_cast<Operation>(operation)) {
    case Operation::all_reduce:
      call->elements_out = given;
      break;
    case Operation::broadcast:
      if (given == 0) call->elements_in = std::nullopt;
      call->elements_out = call->elements_in;
      break;
    case Operation::all_gather:
      call->elements_out = given * count;
      break;
    case Operation::reduce_scatter:
      call->elements_out = given / count;
      break;
    case Operation::scatter:
      if (given > 0) call->elements_out = given / count;
      break;
    case Operation::barrier:
      call->elements_in = call->elements_out = 0;
      break;
    case Operation::gather:
    case Operation::all_to_all:
      break;
  }
}

class CallReader {
 public:
  CallReader(int64_t world_size, bool own_bytes) : world_size_(world_size), own_(own_bytes) {}
  CallReader(const RunOutcome& outcome, const GroupTable& groups, size_t rank)
      : CallReader(ranks_of(outcome.plan.scenario), outcome.own_bytes) {
    groups_ = &groups;
    rank_ = rank;
  }

  std::vector<RecordedCall> read(const RankRecords& records) {
    for (const Event& event : records.events) {
      if (static_cast<EventKind>(event.kind) == EventKind::double_run) break;
      take(event);
    }
    std::vector<RecordedCall> found;
    bool any_of_group = false;
    for (auto& [key, call] : calls_) {
      if (!call.started_ns && (!queued_ || call.group || call.ended_ns))
        call.started_ns = call.called_ns;
      any_of_group |= call.group.has_value();
      found.push_back(std::move(call));
    }
    if (any_of_group)
      std::stable_sort(found.begin(), found.end(),
                       [](const auto& a, const auto& b) { return a.called_ns < b.called_ns; });
    return found;
  }

 private:
  // The group's place in the table and one; 0: all ranks.
  using Key = std::pair<size_t, uint32_t>;

  void take(const Event& event) {
    if (event.kind == kGroupArrival || event.kind == kGroupEnd) return take_of_group(event);
    const auto kind = static_cast<EventKind>(event.kind);
    if (kind == EventKind::arrival) arrive(event, std::nullopt, event.subject, world_size_);
    queued_ = queued_ || kind == EventKind::launched;
    const auto call = calls_.find({0, event.sequence});
    if (call == calls_.end()) return;  // its arrival was dropped
    if (kind == EventKind::launched) call->second.started_ns = event.time_ns;
    if (kind == EventKind::end) call->second.ended_ns = event.time_ns;
  }

  void take_of_group(const Event& event) {
    const auto group = groups_ == nullptr ? std::nullopt : groups_->place_of(rank_, event.subject);
    if (!group) return;
    if (event.kind == kGroupArrival)
      return arrive(event, group, -1, static_cast<int64_t>(groups_->groups[*group].ranks.size()));
    const auto call = calls_.find({*group + 1, event.sequence});
    if (call != calls_.end()) call->second.ended_ns = event.time_ns;
  }

  void arrive(const Event& event, std::optional<size_t> group, int64_t bucket, int64_t ranks) {
    const PackedCollective packed = unpack_collective(event.value);
    const char* word = word_of_call(packed.operation);
    if (word == nullptr) return;
    RecordedCall& call = calls_[{group ? *group + 1 : 0, event.sequence}] = RecordedCall();
    call.sequence = event.sequence;
    call.group = group;
    call.operation = word;
    call.bucket = bucket;
    call.step = event.step;
    call.type = element_type_of(packed.dtype);
    call.phase = static_cast<Phase>(event.phase);
    call.called_ns = event.time_ns;
    const int64_t elements = packed.bytes / (call.type == nullptr ? 1 : call.type->bytes);
    (own_ ? set_own_elements : set_elements)(packed.operation, elements, ranks, &call);
  }

  const int64_t world_size_;
  const bool own_;
  const GroupTable* groups_ = nullptr;
  size_t rank_ = 0;
  bool queued_ = false;
  std::map<Key, RecordedCall> calls_;
};

}  // namespace

const char* word_of_call(uint8_t operation) {
  if (operation == kReduce) return "reduce";
  return is_operation(operation) ? to_word(static_cast<Operation>(operation)) : nullptr;
}

std::vector<RecordedCall> recorded_calls(const RankRecords& records, int64_t world_size) {
  return CallReader(world_size, false).read(records);
}

std::vector<RecordedCall> recorded_calls(const RunOutcome& outcome, const GroupTable& groups,
                                         size_t rank) {
  return CallReader(outcome, groups, rank).read(outcome.ranks[rank]);
}

}  // namespace lockstep
