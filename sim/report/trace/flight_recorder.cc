#include "sim/report/trace/flight_recorder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "sim/report/trace/pickle.h"

namespace lockstep {
namespace {

constexpr const char* kVersion = "2.10";
constexpr const char* kGroup = "0";
constexpr const char* kGroupDescription = "default_pg";
constexpr size_t kMostEntries = 2000;

class DumpWriter {
 public:
  DumpWriter(const TracedRun& run, size_t rank)
      : timeouts_(run.outcome.plan.scenario.timeouts),
        calls_(run.calls[rank]),
        backend_(backend_of(run.outcome.plan.scenario)),
        world_size_(run.timeline.world_size) {}

  std::string write() {
    out_.begin_dict();
    text("version", kVersion);
    group();
    text("comm_lib_version", "");
    status();
    key("entries");
    out_.begin_list();
    const size_t first = calls_.size() - std::min(calls_.size(), kMostEntries);
    for (size_t i = first; i < calls_.size(); ++i) entry(calls_[i]);
    out_.end_list();
    out_.end_dict();
    return out_.take();
  }

 private:
  void key(const char* name) { out_.text(name); }
  void text(const char* name, std::string_view value) {
    key(name);
    out_.text(value);
  }
  void integer(const char* name, int64_t value) {
    key(name);
    out_.integer(value);
  }
  void time(const char* name, const std::optional<int64_t>& time_ns) {
    if (time_ns) return integer(name, *time_ns);
    key(name);
    out_.none();
  }
  void boolean(const char* name, bool value) {
    key(name);
    out_.boolean(value);
  }

  void group() {
    std::vector<int64_t> ranks(static_cast<size_t>(world_size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    key("pg_config");
    out_.begin_dict();
    key(kGroup);
    out_.begin_dict();
    text("name", kGroup);
    text("desc", kGroupDescription);
    text("ranks", fmt::format("[{}]", fmt::join(ranks, ", ")));
    out_.end_dict();
    out_.end_dict();
  }

  // The newest collective that has come so far; -1: none has.
  int64_t last(bool (*has)(const RecordedCall& call)) const {
    const auto found = std::find_if(calls_.rbegin(), calls_.rend(), has);
    return found == calls_.rend() ? -1 : int64_t{found->sequence};
  }
  void status() {
    key("pg_status");
    out_.begin_dict();
    key(kGroup);
    out_.begin_dict();
    integer("last_enqueued_collective", last([](auto&) { return true; }));
    integer("last_started_collective",
            last([](auto& call) { return call.started_ns.has_value(); }));
    integer("last_completed_collective",
            last([](auto& call) { return call.ended_ns.has_value(); }));
    out_.end_dict();
    out_.end_dict();
  }

  void entry(const RecordedCall& call) {
    out_.begin_dict();
    integer("record_id", call.sequence);
    integer("pg_id", 0);
    key("process_group");
    out_.begin_tuple();
    out_.text(kGroup);
    out_.text(kGroupDescription);
    out_.end_tuple();
    integer("collective_seq_id", call.sequence);
    integer("p2p_seq_id", 0);
    integer("op_id", call.sequence);
    text("profiling_name", fmt::format("{}:{}", backend_, call.operation));
    tensor("input", call, call.elements_in);
    tensor("output", call, call.elements_out);
    times(call);
    integer("timeout_ms", call.phase == Phase::construction ? timeouts_.construction_ms
                                                            : timeouts_.collective_ms);
    boolean("is_p2p", false);
    frames(call);
    out_.end_dict();
  }

  // What the collective got is one flat tensor, whose shape is not recorded.
  void tensor(const char* which, const RecordedCall& call, int64_t elements) {
    const bool any = call.operation != "barrier";
    key((std::string(which) + "_sizes").c_str());
    out_.begin_list();
    if (any) {
      out_.begin_list();
      out_.integer(elements);
      out_.end_list();
    }
    out_.end_list();
    key((std::string(which) + "_dtypes").c_str());
    out_.begin_list();
    if (any) out_.text(call.type == nullptr ? "Undefined" : call.type->torch_name);
    out_.end_list();
  }

  void times(const RecordedCall& call) {
    text("state", call.ended_ns ? "completed" : call.started_ns ? "started" : "scheduled");
    integer("time_created_ns", call.called_ns);
    time("time_discovered_started_ns", call.started_ns);
    time("time_discovered_completed_ns", call.ended_ns);
    boolean("retired", call.ended_ns.has_value());
    if (!call.started_ns || !call.ended_ns) return;
    key("duration_ms");
    out_.real(static_cast<double>(*call.ended_ns - *call.started_ns) / 1e6);
  }

  void frames(const RecordedCall& call) {
    key("frames");
    out_.begin_list();
    out_.begin_dict();
    text("name", call.bucket < 0 ? to_word(call.phase)
                                 : fmt::format("{}, bucket {}", to_word(call.phase), call.bucket));
    text("filename", "step");
    integer("line", call.step);
    out_.end_dict();
    out_.end_list();
  }

  const Timeouts& timeouts_;
  const std::vector<RecordedCall>& calls_;
  const std::string backend_;
  const int64_t world_size_;
  PickleWriter out_;
};

}  // namespace

std::string flight_recorder_dump(const TracedRun& run, size_t rank) {
  return DumpWriter(run, rank).write();
}

}  // namespace lockstep
