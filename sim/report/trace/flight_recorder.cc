#include "sim/report/trace/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/report/trace/pickle.h"

namespace lockstep {
namespace {

constexpr const char* kVersion = "2.10";
constexpr size_t kMostEntries = 2000;

using Group = std::optional<size_t>;  // its place in Timeline::groups; nothing: of all ranks

class DumpWriter {
 public:
  DumpWriter(const TracedRun& run, size_t rank)
      : timeouts_(run.outcome.plan.scenario.timeouts),
        timeline_(run.timeline),
        calls_(run.calls[rank]),
        backend_(backend_of(run.outcome.plan.scenario)) {
    groups_.push_back(std::nullopt);
    for (size_t i = 0; i < timeline_.groups.size(); ++i) {
      const std::vector<int64_t>& ranks = timeline_.groups[i].ranks;
      if (std::binary_search(ranks.begin(), ranks.end(), static_cast<int64_t>(rank)))
        groups_.emplace_back(i);
    }
  }

  std::string write() {
    out_.begin_dict();
    text("version", kVersion);
    config();
    text("comm_lib_version", "");
    status();
    key("entries");
    out_.begin_list();
    const size_t first = calls_.size() - std::min(calls_.size(), kMostEntries);
    const int64_t lost = lost_calls();
    for (size_t i = first; i < calls_.size(); ++i) entry(calls_[i], lost + static_cast<int64_t>(i));
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

  // Every group that the rank is in, also one that it has called nothing in.
  void config() {
    key("pg_config");
    out_.begin_dict();
    for (const Group& group : groups_) {
      const std::string& name = group_name(timeline_, group);
      key(name.c_str());
      out_.begin_dict();
      text("name", name);
      text("desc", group_description(timeline_, group));
      text("ranks", ranks_text(timeline_, group));
      out_.end_dict();
    }
    out_.end_dict();
  }

  // The group's newest collective that has come so far; -1: none has.
  int64_t last(const Group& group, bool (*has)(const RecordedCall& call)) const {
    const auto found = std::find_if(calls_.rbegin(), calls_.rend(), [&](const RecordedCall& call) {
      return call.group == group && has(call);
    });
    return found == calls_.rend() ? -1 : int64_t{found->sequence};
  }

  // By the numbers of this process's own groups, as PyTorch counts them.
  void status() {
    key("pg_status");
    out_.begin_dict();
    for (size_t id = 0; id < groups_.size(); ++id) {
      const Group& group = groups_[id];
      key(std::to_string(id).c_str());
      out_.begin_dict();
      integer("last_enqueued_collective", last(group, [](auto&) { return true; }));
      integer("last_started_collective",
              last(group, [](auto& call) { return call.started_ns.has_value(); }));
      integer("last_completed_collective",
              last(group, [](auto& call) { return call.ended_ns.has_value(); }));
      out_.end_dict();
    }
    out_.end_dict();
  }

  // Of which nothing was kept: the first that is known of a group says how many went before.
  int64_t lost_calls() const {
    int64_t lost = 0;
    for (const Group& group : groups_) {
      const auto first = std::find_if(calls_.begin(), calls_.end(), [&](const RecordedCall& call) {
        return call.group == group;
      });
      if (first != calls_.end()) lost += std::max<int64_t>(1, first->sequence) - 1;
    }
    return lost;
  }

  void entry(const RecordedCall& call, int64_t record) {
    const auto id = std::find(groups_.begin(), groups_.end(), call.group) - groups_.begin();
    out_.begin_dict();
    integer("record_id", record);
    integer("pg_id", id);
    key("process_group");
    out_.begin_tuple();
    out_.text(group_name(timeline_, call.group));
    out_.text(group_description(timeline_, call.group));
    out_.end_tuple();
    integer("collective_seq_id", call.sequence);
    integer("p2p_seq_id", 0);
    integer("op_id", call.sequence);
    text("profiling_name", fmt::format("{}:{}", backend_, call.operation));
    tensor("input", call, call.elements_in);
    tensor("output", call, call.elements_out);
    times(call);
    timeout(call);
    boolean("is_p2p", false);
    frames(call);
    out_.end_dict();
  }

  // Of a group of some ranks it is not always known.
  void timeout(const RecordedCall& call) {
    const int64_t all =
        call.phase == Phase::construction ? timeouts_.construction_ms : timeouts_.collective_ms;
    const int64_t own = call.group ? timeline_.groups[*call.group].timeout_ms : all;
    if (own >= 0) integer("timeout_ms", own);
  }

  // What the collective got is one flat tensor, whose shape is not recorded; where its size is not
  // known either, that shape is empty. PyTorch's tool compares what an all_to_all took and gave in
  // all, so that it is told both or none.
  void tensor(const char* which, const RecordedCall& call, std::optional<int64_t> elements) {
    const bool any = call.operation != "barrier";
    const bool told = elements && (call.operation != "all_to_all" || call.elements_out);
    key((std::string(which) + "_sizes").c_str());
    out_.begin_list();
    if (any) {
      out_.begin_list();
      if (told) out_.integer(*elements);
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
  const Timeline& timeline_;
  const std::vector<RecordedCall>& calls_;
  const std::string backend_;
  std::vector<Group> groups_;  // of the rank, as pg_id numbers them
  PickleWriter out_;
};

}  // namespace

std::string flight_recorder_dump(const TracedRun& run, size_t rank) {
  return DumpWriter(run, rank).write();
}

}  // namespace lockstep
