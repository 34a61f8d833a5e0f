#include "sim/report/trace/chakra.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sim/report/trace/protobuf.h"

namespace lockstep {
namespace {

// Numbers of et_def.proto.
constexpr const char* kSchemaVersion = "0.0.4";
constexpr int kComputeNode = 4, kCollectiveNode = 7;
constexpr int kId = 1, kName = 2, kType = 3, kDataDependencies = 5, kStartMicros = 6,
              kDurationMicros = 7, kAttributes = 10;
constexpr int kAttributeName = 1, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29;
constexpr std::array<std::pair<const char*, uint64_t>, 9> kCollectiveTypes = {
    {{"all_reduce", 0},
     {"reduce", 1},
     {"all_gather", 2},
     {"gather", 3},
     {"scatter", 4},
     {"broadcast", 5},
     {"all_to_all", 6},
     {"reduce_scatter", 7},
     {"barrier", 9}}};

uint64_t comm_type_of(const std::string& operation) {
  const auto found = std::find_if(kCollectiveTypes.begin(), kCollectiveTypes.end(),
                                  [&](const auto& type) { return operation == type.first; });
  return found == kCollectiveTypes.end() ? 0 : found->second;
}

class ChakraWriter {
 public:
  ChakraWriter(const TracedRun& run, size_t rank)
      : timeline_(run.timeline),
        phases_(run.timeline.phases[rank]),
        calls_(run.calls[rank]),
        origin_ns_(run.timeline.origin_ns) {
    std::stable_sort(calls_.begin(), calls_.end(),
                     [](auto& a, auto& b) { return a.called_ns < b.called_ns; });
  }

  std::string write() {
    ProtobufMessage head;
    head.text(1, kSchemaVersion);
    out_ = head.delimited();
    size_t next = 0;
    for (const PhaseInterval& phase : phases_) {
      int64_t at_ns = phase.time.begin_ns;
      for (; next < calls_.size() && calls_[next].called_ns < phase.time.end_ns; ++next) {
        const RecordedCall& call = calls_[next];
        compute(phase, at_ns, call.called_ns);
        collective(call);
        at_ns = std::max(at_ns, call.called_ns);
        if (call.bucket < 0) at_ns = std::max(at_ns, call.ended_ns.value_or(at_ns));
      }
      compute(phase, at_ns, phase.time.end_ns);
    }
    for (; next < calls_.size(); ++next) collective(calls_[next]);
    return std::move(out_);
  }

 private:
  struct Pending {
    uint64_t id;
    int64_t ended_ns;
  };

  static void attribute(const char* name, int field, uint64_t value, ProtobufMessage* node) {
    ProtobufMessage attribute;
    attribute.text(kAttributeName, name);
    attribute.number(field, value);
    node->message(kAttributes, attribute);
  }

  ProtobufMessage node(int type, const std::string& name, const std::vector<uint64_t>& after,
                       int64_t begin_ns, int64_t end_ns) {
    constexpr int64_t kNsPerUs = 1000;
    ProtobufMessage made;
    made.number(kId, next_id_++);
    made.text(kName, name);
    made.number(kType, static_cast<uint64_t>(type));
    for (const uint64_t id : after) made.number(kDataDependencies, id);
    const int64_t start_us = std::max<int64_t>(0, begin_ns - origin_ns_) / kNsPerUs;
    made.number(kStartMicros, static_cast<uint64_t>(start_us));
    made.number(kDurationMicros,
                static_cast<uint64_t>(std::max<int64_t>(0, end_ns - begin_ns) / kNsPerUs));
    attribute("is_cpu_op", kBool, 0, &made);
    return made;
  }

  // What had ended by then, and nothing depends on yet.
  std::vector<uint64_t> ended_by(int64_t time_ns) {
    std::vector<uint64_t> found;
    for (const Pending& one : pending_)
      if (one.ended_ns <= time_ns) found.push_back(one.id);
    std::erase_if(pending_, [&](const Pending& one) { return one.ended_ns <= time_ns; });
    return found;
  }

  void compute(const PhaseInterval& phase, int64_t begin_ns, int64_t end_ns) {
    const bool waits = phase.phase == Phase::wait || phase.phase == Phase::rendezvous;
    if (waits || end_ns <= begin_ns) return;
    std::vector<uint64_t> after = last_compute_;
    for (const uint64_t id : ended_by(begin_ns)) after.push_back(id);
    last_compute_ = {next_id_};
    out_ += node(kComputeNode, fmt::format("{} of step {}", to_word(phase.phase), phase.step),
                 after, begin_ns, end_ns)
                .delimited();
  }

  void collective(const RecordedCall& call) {
    if (call.ended_ns) pending_.push_back({next_id_, *call.ended_ns});
    ProtobufMessage made =
        node(kCollectiveNode, fmt::format("{} {}", call.operation, call.sequence), last_compute_,
             call.called_ns, call.ended_ns.value_or(call.called_ns));
    const int64_t element_bytes = call.type == nullptr ? 1 : call.type->bytes;
    // What is known: of none of both, that there were no bytes.
    const int64_t bytes =
        std::max(call.elements_in.value_or(0), call.elements_out.value_or(0)) * element_bytes;
    attribute("comm_type", kInt64, comm_type_of(call.operation), &made);
    if (call.elements_in || call.elements_out)
      attribute("comm_size", kUint64, static_cast<uint64_t>(bytes), &made);
    ProtobufMessage group;
    group.text(kAttributeName, "pg_name");
    group.text(kString, group_name(timeline_, call.group));
    made.message(kAttributes, group);
    out_ += made.delimited();
  }

  const Timeline& timeline_;
  const std::vector<PhaseInterval>& phases_;
  std::vector<RecordedCall> calls_;  // in the order of time
  const int64_t origin_ns_;
  std::string out_;
  uint64_t next_id_ = 0;
  std::vector<uint64_t> last_compute_;  // none or one
  std::vector<Pending> pending_;
};

}  // namespace

std::string chakra_trace(const TracedRun& run, size_t rank) {
  return ChakraWriter(run, rank).write();
}

}  // namespace lockstep
