#include "sim/tools/explain/kineto_trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "scenarios/base/text.h"
#include "sim/analysis/unpacked_bytes.h"
#include "sim/tools/explain/file_rank.h"
#include "sim/tools/explain/source_kind.h"

namespace lockstep {
namespace {

using ProfilerJson = nlohmann::json;

constexpr const char* kTraceAllowed = "a trace of torch.profiler";
constexpr double kLatestUs = 4e15;  // the year 2096, and as nanoseconds an int64_t

// What an event says; of args what matters here.
struct ProfilerEvent {
  std::string phase, category, name;
  std::optional<double> begin_us, duration_us, stream, correlation;
  std::string thread;
  std::string collective, group, description, dtype, elements_in, elements_out, splits;
  std::optional<double> sequence;
};

enum class Activity { none, compute, communication, step };

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool begins_with_one_of(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

// Of kernels: of NCCL, RCCL, oneCCL and HCCL, and those of lockstep's own traces.
bool is_communication(const std::string& name) {
  return begins_with_one_of(name, {"nccl", "rccl", "oneccl", "hccl",
                                   "gloo:", "shm:", "local:", "hierarchical:", "c10d:"}) ||
         name.find("ncclKernel") != std::string::npos ||
         name.find("ncclDevKernel") != std::string::npos;
}

// Kernels by their names, as HolisticTraceAnalysis tells them apart; "Kernel" was its word in 2021.
Activity activity_on_gpu(const ProfilerEvent& event) {
  if (!event.stream || !is_one_of(event.category, {"kernel", "Kernel"})) return Activity::none;
  if (begins_with_one_of(event.name, {"Memcpy", "Memset", "hipMemcpy", "hipMemset"}))
    return Activity::none;
  return is_communication(event.name) ? Activity::communication : Activity::compute;
}

Activity activity_on_cpu(const ProfilerEvent& event) {
  if (event.category == "user_annotation" && event.name.starts_with("gloo:"))
    return Activity::communication;
  const bool communicates = begins_with_one_of(
      event.name, {"c10d::", "_c10d_functional::", "record_param_comms", "nccl:"});
  return event.category == "cpu_op" && !communicates ? Activity::compute : Activity::none;
}

// Names of PyTorch's dispatcher and of NCCL's kernels, in the words of torch.distributed; the
// longer ones first.
constexpr std::array<std::array<std::string_view, 2>, 15> kOperationWords{{
    {"ReduceScatter", "reduce_scatter"},
    {"reduce_scatter", "reduce_scatter"},
    {"AllReduce", "all_reduce"},
    {"allreduce", "all_reduce"},
    {"all_reduce", "all_reduce"},
    {"AllGather", "all_gather"},
    {"allgather", "all_gather"},
    {"all_gather", "all_gather"},
    {"AllToAll", "all_to_all"},
    {"alltoall", "all_to_all"},
    {"all_to_all", "all_to_all"},
    {"SendRecv", "send_recv"},
    {"Broadcast", "broadcast"},
    {"broadcast", "broadcast"},
    {"Reduce", "reduce"},
}};

std::string operation_of(const std::string& name) {
  for (const auto& [part, operation] : kOperationWords)
    if (name.find(part) != std::string::npos) return std::string(operation);
  const size_t colon = name.find(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

// Keeps what counts of each event, as the document is read.
class KinetoReader : public nlohmann::json_sax<ProfilerJson> {
 public:
  KinetoReader(KinetoTrace* trace, UnpackedBytes* bytes) : trace_(trace), bytes_(bytes) {}

  bool null() override { return value({}, {}); }
  bool boolean(bool) override { return value({}, {}); }
  bool number_integer(number_integer_t number) override {
    return value({}, static_cast<double>(number));
  }
  bool number_unsigned(number_unsigned_t number) override {
    return value({}, static_cast<double>(number));
  }
  bool number_float(number_float_t number, const string_t&) override { return value({}, number); }
  bool string(string_t& text) override { return value(std::move(text), {}); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool key(string_t& name) override {
    pause();
    if (depth_ == 1)
      root_ = std::move(name);
    else if (depth_ <= kDeepestKey)
      keys_[static_cast<size_t>(depth_)] = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const ProfilerJson::exception&) override {
    return false;
  }

  bool has_events() const { return has_events_; }
  std::optional<double> rank() const { return rank_; }

  // The last event is known.
  void finish() {
    trace_->begin_us = base_us_ + first_us_.value_or(0);
    keep_launched();
    if (trace_->calls.empty()) trace_->calls = std::move(annotated_);
    if (trace_->communication.empty())
      for (const TraceCall& call : trace_->calls) trace_->communication.push_back(call.time);
    const std::string only = trace_->groups.size() == 1 ? trace_->groups.begin()->first : "unnamed";
    for (TraceCall& call : trace_->calls)
      if (call.group.empty()) call.group = only;
    if (trace_->on_gpu) return;
    trace_->compute.clear();
    for (const auto& [thread, intervals] : by_thread_)
      if (!communicating_.contains(thread))
        trace_->compute.insert(trace_->compute.end(), intervals.begin(), intervals.end());
  }

 private:
  static constexpr int kDeepestKey = 5;

  void pause() {
    if (bytes_ != nullptr) bytes_->pause();
  }

  bool open() {
    pause();
    if (depth_ == 1 && root_ == "traceEvents") has_events_ = true;
    if (depth_ == 2 && root_ == "traceEvents") event_ = {};
    ++depth_;
    if (depth_ <= kDeepestKey) keys_[static_cast<size_t>(depth_)].clear();
    return true;
  }

  bool close() {
    pause();
    --depth_;
    if (depth_ == 2 && root_ == "traceEvents") take(event_);
    if (depth_ == 3 && root_ == "distributedInfo") take_group();
    return true;
  }

  bool value(std::string text, std::optional<double> number) {
    pause();
    if (root_ == "traceEvents" && depth_ == 3)
      of_event(keys_[3], std::move(text), number);
    else if (root_ == "traceEvents" && depth_ == 4 && keys_[3] == "args")
      of_arguments(keys_[4], std::move(text), number);
    else if (root_ == "distributedInfo")
      of_job(std::move(text), number);
    else if (root_ == "baseTimeNanoseconds" && depth_ == 1 && number)
      base_us_ = *number * 1e-3;
    return true;
  }

  void of_job(std::string text, std::optional<double> number) {
    const std::string& key = keys_[static_cast<size_t>(std::min(depth_, kDeepestKey))];
    if (depth_ == 2 && key == "rank") rank_ = number;
    if (depth_ == 2 && key == "world_size" && number && *number >= 1 && *number < 1e9)
      trace_->world_size = static_cast<int64_t>(*number);
    if (depth_ == 4 && keys_[2] == "pg_config" && key == "pg_name")
      group_.first = std::move(text);
    else if (depth_ == 4 && keys_[2] == "pg_config" && key == "pg_desc")
      group_.second = std::move(text);
  }

  void take_group() {
    if (!group_.first.empty()) trace_->groups.insert(std::exchange(group_, {}));
  }

  void of_event(const std::string& key, std::string text, std::optional<double> number) {
    if (key == "ph")
      event_.phase = std::move(text);
    else if (key == "cat")
      event_.category = std::move(text);
    else if (key == "name")
      event_.name = std::move(text);
    else if (key == "ts")
      event_.begin_us = number;
    else if (key == "dur")
      event_.duration_us = number;
    else if (key == "tid")
      event_.thread = number ? fmt::format("{}", *number) : std::move(text);
  }

  void of_arguments(const std::string& key, std::string text, std::optional<double> number) {
    const auto word = [&] { return number ? fmt::format("{}", *number) : std::move(text); };
    if (key == "stream")
      event_.stream = number;
    else if (key == "correlation")
      event_.correlation = number;
    else if (key == "Collective name")
      event_.collective = word();
    else if (key == "Process Group Name")
      event_.group = word();
    else if (key == "Process Group Description")
      event_.description = word();
    else if (key == "dtype")
      event_.dtype = word();
    else if (key == "In msg nelems")
      event_.elements_in = word();
    else if (key == "Out msg nelems")
      event_.elements_out = word();
    else if (key == "In split size")
      event_.splits = word();
    else if (key == "Seq")
      event_.sequence = number;
  }

  void take(const ProfilerEvent& event) {
    if (event.phase != "X" || !event.begin_us || !event.duration_us) return;
    const double begin = *event.begin_us, end = begin + *event.duration_us;
    if (!(std::abs(begin) <= kLatestUs) || !(end >= begin) || end > kLatestUs) return;
    first_us_ = std::min(first_us_.value_or(begin), begin);
    if (event.category == "user_annotation" && event.name.starts_with("ProfilerStep#")) {
      trace_->steps.push_back({begin, end});
      last_step_us_ = std::max(last_step_us_.value_or(end), end);
    }
    if (!event.stream && event.correlation)
      launched_.push_back({number_of(event.correlation), begin});
    if (event.category == "communication" && is_communication(event.name))
      annotated_.push_back(call_of(event, {begin, end}));
    const Activity on_gpu = activity_on_gpu(event);
    if (on_gpu != Activity::none)
      take_kernel(event, on_gpu, {begin, end});
    else if (!trace_->on_gpu)
      take_of_cpu(event, {begin, end});
  }

  // What the CPU did beside its kernels is not counted.
  void take_kernel(const ProfilerEvent& event, Activity activity, const TraceInterval& time) {
    if (!std::exchange(trace_->on_gpu, true)) {
      trace_->communication.clear();
      trace_->calls.clear();
      by_thread_.clear();
    }
    if (activity == Activity::compute) {
      trace_->compute.push_back(time);
      launches_.push_back(number_of(event.correlation));
    } else {
      take_call(event, time);
    }
  }

  void take_of_cpu(const ProfilerEvent& event, const TraceInterval& time) {
    const Activity activity = activity_on_cpu(event);
    if (activity == Activity::compute) by_thread_[event.thread].push_back(time);
    if (activity != Activity::communication) return;
    communicating_.insert(event.thread);
    take_call(event, time);
  }

  void take_call(const ProfilerEvent& event, const TraceInterval& time) {
    trace_->communication.push_back(time);
    trace_->calls.push_back(call_of(event, time));
    if (!event.group.empty() && !event.description.empty())
      trace_->groups[event.group] = event.description;
  }

  static TraceCall call_of(const ProfilerEvent& event, const TraceInterval& time) {
    TraceCall call;
    call.group = event.group;
    call.operation = operation_of(event.collective.empty() ? event.name : event.collective);
    call.sizes = event.elements_in + "/" + event.elements_out + "/" + event.splits;
    call.dtypes = event.dtype;
    call.sequence = number_of(event.sequence);
    call.point_to_point = is_one_of(call.operation, {"send", "recv", "send_recv"});
    call.launch = number_of(event.correlation);
    call.time = time;
    return call;
  }

  // As HolisticTraceAnalysis does: kernels of before the first step, which the profiler caught
  // while it began, are of no step.
  void keep_launched() {
    if (!trace_->on_gpu || trace_->steps.size() < 2 || launched_.empty()) return;
    std::unordered_set<int64_t> known;
    for (const Launch& launch : launched_)
      if (launch.begin_us <= last_step_us_) known.insert(launch.number);
    std::vector<TraceInterval> compute;
    for (size_t i = 0; i < launches_.size(); ++i)
      if (known.contains(launches_[i])) compute.push_back(trace_->compute[i]);
    trace_->compute = std::move(compute);
    std::erase_if(trace_->calls,
                  [&](const TraceCall& call) { return !known.contains(call.launch); });
    trace_->communication.clear();
    for (const TraceCall& call : trace_->calls) trace_->communication.push_back(call.time);
  }

  static int64_t number_of(const std::optional<double>& value) {
    return value && *value >= 0 && *value < 1e15 ? static_cast<int64_t>(*value) : -1;
  }

  KinetoTrace* const trace_;
  UnpackedBytes* const bytes_;                     // null: all of it is in memory
  int depth_ = 0;                                  // of what is open
  std::string root_;                               // the document's member
  std::array<std::string, kDeepestKey + 1> keys_;  // by depth
  ProfilerEvent event_;
  std::pair<std::string, std::string> group_;
  std::optional<double> rank_;
  bool has_events_ = false;
  struct Launch {
    int64_t number;
    double begin_us;
  };
  std::vector<TraceCall> annotated_;  // by lockstep's own traces, over Gloo
  std::vector<Launch> launched_;      // what the CPU launched
  std::vector<int64_t> launches_;     // of trace_->compute
  std::optional<double> last_step_us_;
  double base_us_ = 0;
  std::optional<double> first_us_;
  std::map<std::string, std::vector<TraceInterval>> by_thread_;  // operators of the CPU
  std::set<std::string> communicating_;                          // threads of Gloo
};

// Throws TooMuch. `bytes`: null where the text is in memory.
template <class Iterator>
Expected<KinetoTrace> parse(Iterator begin, Iterator end, UnpackedBytes* bytes,
                            const std::string& path) {
  KinetoTrace trace;
  trace.file = path;
  KinetoReader reader(&trace, bytes);
  const bool read =
      ProfilerJson::sax_parse(begin, end, &reader, ProfilerJson::input_format_t::json);
  if (bytes != nullptr && !read) bytes->look_for_damage();
  if (bytes != nullptr && !bytes->problem().empty())
    return file_error(path, bytes->problem(), kTraceAllowed);
  if (!read)
    return InputError{path,
                      bytes == nullptr ? 0 : bytes->line(),
                      bytes == nullptr ? 0 : bytes->column(),
                      "",
                      "is no JSON, or cut off",
                      kTraceAllowed};
  if (!reader.has_events()) return file_error(path, "holds no \"traceEvents\"", kTraceAllowed);
  reader.finish();
  std::sort(trace.steps.begin(), trace.steps.end(),
            [](const TraceInterval& a, const TraceInterval& b) { return a.begin_us < b.begin_us; });
  std::stable_sort(
      trace.calls.begin(), trace.calls.end(),
      [](const TraceCall& a, const TraceCall& b) { return a.time.begin_us < b.time.begin_us; });
  const std::optional<double> rank = reader.rank();
  if (rank && *rank >= 0 && *rank < 1e9) trace.rank = static_cast<int64_t>(*rank);
  if (!rank) trace.rank = rank_in_name(path).rank;
  return trace;
}

}  // namespace

bool is_kineto_head(std::string_view head) {
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || head[first] != '{') return false;
  const auto holds = [&](const char* word) { return head.find(word) != std::string_view::npos; };
  return holds("\"traceEvents\"") || (holds("\"schemaVersion\"") && holds("\"deviceProperties\""));
}

bool is_packed_kineto(const std::string& path) {
  const auto bytes = UnpackedBytes::open(path);
  if (!bytes) return false;
  std::string head;
  try {
    for (; head.size() < static_cast<size_t>(kKindBytes) && !bytes.value()->ended();
         bytes.value()->advance())
      head += bytes.value()->peek();
  } catch (const TooMuch&) {
    return false;
  }
  return is_kineto_head(head);
}

Expected<KinetoTrace> read_kineto_trace(const std::string& path) {
  const auto bytes = UnpackedBytes::open(path);
  if (!bytes) return bytes.errors();
  UnpackedBytes& all = *bytes.value();
  try {
    return parse(all.begin(), all.end(), &all, path);
  } catch (const TooMuch& error) {
    return InputError{path, all.line(), all.column(), "", error.what(), kTraceAllowed};
  }
}

Expected<KinetoTrace> kineto_trace_of(const std::string& bytes, const std::string& path) {
  return parse(bytes.begin(), bytes.end(), nullptr, path);
}

}  // namespace lockstep
