#include "sim/report/trace/kineto.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "sim/analysis/metrics.h"
#include "sim/report/fault_marks.h"

namespace lockstep {
namespace {

// HTA keeps numbers in as few bits as the first ones need, and then has no room for others.
constexpr int64_t kFirstLaunch = 1 << 24;
constexpr int kSteps = 1, kLaunches = 2, kComputeStream = 7, kCommStream = 20;

// Streams the events of any number of ranks.
class KinetoWriter {
 public:
  KinetoWriter(std::ostream& out, const TracedRun& run, KinetoNames names)
      : out_(out), outcome_(run.outcome), timeline_(run.timeline) {
    backend_ = backend_of(outcome_.plan.scenario);
    nccl_ = backend_ == "nccl" || names == KinetoNames::hta;
    for (const int64_t step : metrics_of(timeline_).steps) measured_.insert(step);
  }

  // The line with the rank comes first: HTA looks for it.
  void head(std::optional<size_t> only) {
    out_ << "{\n\"distributedInfo\": {\"backend\": \"" << outcome_.plan.scenario.communicator.kind
         << "\"";
    if (only) out_ << ", \"rank\": " << *only;
    out_ << ", \"world_size\": " << timeline_.world_size << "},\n\"schemaVersion\": 1,\n"
         << "\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [";
  }
  void foot() { out_ << "\n]\n}\n"; }

  void rank(size_t rank) {
    rank_ = rank;
    launches_ = kFirstLaunch;
    lanes_.clear();
    name("process_name", 0, fmt::format("rank {}", rank));
    event(R"("ph": "M", "name": "process_sort_index", "tid": 0, "args": {{"sort_index": {}}})",
          rank);
    name("thread_name", kSteps, "steps and phases");
    name("thread_name", kLaunches, "launches");
    name("thread_name", kComputeStream, "compute");
    steps();
    for (const PhaseInterval& phase : timeline_.phases[rank]) this->phase(phase);
    for (const Collective* b : entered()) collective(*b);
    for (const Event& e : outcome_.ranks[rank].events) mark(e);
  }

 private:
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    out_ << (any_ ? ",\n{" : "\n{") << "\"pid\": " << rank_ << ", "
         << fmt::format(format, std::forward<Args>(args)...) << "}";
    any_ = true;
  }

  void name(const char* what, int track, const std::string& text) {
    event(R"("ph": "M", "name": "{}", "tid": {}, "args": {{"name": "{}"}})", what, track, text);
  }

  static std::string us(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
  std::string at(int64_t time_ns) const {
    return us(std::max<int64_t>(0, time_ns - timeline_.origin_ns));
  }

  void slice(int track, const std::string& label, const char* category, const Interval& time,
             const std::string& args) {
    event(R"("ph": "X", "tid": {}, "name": "{}", "cat": "{}", "ts": {}, "dur": {}, "args": {{{}}})",
          track, label, category, at(time.begin_ns), us(time.length_ns()), args);
  }

  void steps() {
    for (const Step& step : timeline_.steps)
      if (measured_.count(step.step) > 0)
        slice(kSteps, fmt::format("ProfilerStep#{}", step.step), "user_annotation",
              step.ranks[rank_].time, "");
  }

  // With its launch, which HTA asks for.
  void kernel(int stream, const std::string& label, const Interval& time, std::string args) {
    ++launches_;
    slice(kLaunches, "cudaLaunchKernel", "cuda_runtime", {time.begin_ns, time.begin_ns + 1000},
          fmt::format(R"("correlation": {})", launches_));
    if (!args.empty()) args = ", " + args;
    slice(stream, label, "kernel", time,
          fmt::format(R"("stream": {}, "device": {}, "correlation": {}{})", stream, rank_,
                      launches_, args));
  }

  void phase(const PhaseInterval& phase) {
    slice(kSteps, to_word(phase.phase), "phase", phase.time,
          fmt::format(R"("step": {})", phase.step));
    if (phase.phase != Phase::forward && phase.phase != Phase::backward) return;
    if (measured_.count(phase.step) > 0)
      kernel(kComputeStream, to_word(phase.phase), phase.time, "");
    else
      slice(kComputeStream, to_word(phase.phase), "warm-up", phase.time, "");
  }

  // Tracks cannot hold slices that overlap: the first that is free by then.
  int lane_for(const Interval& time) {
    size_t lane = 0;
    while (lane < lanes_.size() && lanes_[lane] > time.begin_ns) ++lane;
    if (lane == lanes_.size()) {
      lanes_.push_back(0);
      name("thread_name", kCommStream + static_cast<int>(lane),
           lane == 0 ? "communication" : fmt::format("communication {}", lane + 1));
    }
    lanes_[lane] = time.end_ns;
    return kCommStream + static_cast<int>(lane);
  }

  std::string label_of(const Collective& b) const {
    if (!nccl_) return fmt::format("{}:{}", backend_, operation_of(b));
    std::string label = "ncclKernel_";
    bool upper = true;
    for (const char* c = operation_of(b); *c != '\0'; ++c) {
      if (*c != '_') label += upper ? static_cast<char>(*c - 'a' + 'A') : *c;
      upper = *c == '_';
    }
    return label;
  }

  // Of the rank; with those of groups among them, in the order in which it entered them.
  std::vector<const Collective*> entered() const {
    std::vector<const Collective*> all;
    for (const auto* collectives : {&timeline_.collectives, &timeline_.group_collectives})
      for (const Collective& one : *collectives)
        if (one.ranks[rank_].arrival_ns) all.push_back(&one);
    if (!timeline_.group_collectives.empty())
      std::stable_sort(all.begin(), all.end(), [&](const Collective* a, const Collective* b) {
        return *a->ranks[rank_].arrival_ns < *b->ranks[rank_].arrival_ns;
      });
    return all;
  }

  void collective(const Collective& b) {
    const Passage& own = b.ranks[rank_];
    // What never ended is drawn to the rank's last sign of life.
    const std::vector<PhaseInterval>& phases = timeline_.phases[rank_];
    const int64_t last_ns = phases.empty() ? *own.arrival_ns : phases.back().time.end_ns;
    const Interval time{*own.arrival_ns,
                        own.end_ns.value_or(std::max(last_ns, *own.arrival_ns + 1000))};
    const int track = lane_for(time);
    std::string args = fmt::format(R"("sequence": {}, "bucket": {}, "bytes": {}, "ended": {})",
                                   b.sequence, b.bucket, b.bytes, own.end_ns.has_value());
    if (!timeline_.groups.empty()) args += of_group(b.group);
    if (own.launched_ns)
      args += fmt::format(R"(, "queued_us": {})",
                          us(std::max<int64_t>(0, *own.launched_ns - *own.arrival_ns)));
    if (nccl_ && b.step > 0 && measured_.count(b.step) > 0)
      kernel(track, label_of(b), time, args);
    else
      slice(track, label_of(b), "communication", time, args);
    if (own.ready_ns) arrow(b, *own.ready_ns, *own.arrival_ns, track);
  }

  // By PyTorch's names.
  std::string of_group(const std::optional<size_t>& group) const {
    const auto text = [](const std::string& words) { return nlohmann::json(words).dump(); };
    return fmt::format(
        R"(, "Process Group Name": {}, "Process Group Description": {}, "Process Group Ranks": {})",
        text(group_name(timeline_, group)), text(group_description(timeline_, group)),
        text(ranks_text(timeline_, group)));
  }

  void arrow(const Collective& b, int64_t from_ns, int64_t to_ns, int track) {
    const uint64_t id = (static_cast<uint64_t>(rank_) << 32) | b.sequence;
    const std::string label = fmt::format("bucket {}", b.bucket);
    event(R"("ph": "s", "id": {}, "name": "{}", "cat": "bucket", "tid": {}, "ts": {})", id, label,
          kComputeStream, at(from_ns));
    event(R"("ph": "f", "bp": "e", "id": {}, "name": "{}", "cat": "bucket", "tid": {}, "ts": {})",
          id, label, track, at(to_ns));
  }

  void mark(const Event& e) {
    if (static_cast<EventKind>(e.kind) != EventKind::receipt) return;
    event(R"("ph": "i", "s": "p", "name": "{}", "cat": "fault", "tid": {}, "ts": {})",
          receipt_name(outcome_.plan.scenario, e.subject), kSteps, at(e.time_ns));
  }

  std::ostream& out_;
  const RunOutcome& outcome_;
  const Timeline& timeline_;
  std::string backend_;
  bool nccl_ = false;  // collectives are named as NCCL's kernels
  std::set<int64_t> measured_;
  std::vector<int64_t> lanes_;  // when each communication track is free again
  size_t rank_ = 0;
  int64_t launches_ = 0;
  bool any_ = false;
};

}  // namespace

void write_kineto(std::ostream& out, const TracedRun& run, KinetoNames names,
                  std::optional<size_t> only) {
  KinetoWriter writer(out, run, names);
  writer.head(only);
  for (size_t rank = only.value_or(0); rank < (only ? *only + 1 : run.ranks()); ++rank)
    writer.rank(rank);
  writer.foot();
}

}  // namespace lockstep
