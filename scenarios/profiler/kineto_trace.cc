#include "scenarios/profiler/kineto_trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "scenarios/base/streamed_json.h"
#include "scenarios/base/text.h"
#include "scenarios/base/unpacked_bytes.h"
#include "scenarios/profiler/kineto_event.h"

namespace lockstep {
namespace {

using ProfilerJson = nlohmann::json;

constexpr const char* kTraceAllowed = "a trace of torch.profiler";
constexpr double kLatestUs = 4e15;   // the year 2096, and as nanoseconds an int64_t
constexpr size_t kHeadBytes = 4096;  // by which such a file is known
constexpr size_t kMostDimensions = 64;
constexpr double kMostSize = 9e15;  // of a dimension

int64_t number_of(const std::optional<double>& value) {
  return value && *value >= 0 && *value < 1e15 ? static_cast<int64_t>(*value) : -1;
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
    trace_->base_us = base_us_;
    trace_->begin_us = base_us_ + first_us_.value_or(0);
    fill_device_work();
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
    if (depth_ == 5 && in_arguments("Input Dims") && event_.shapes++ == 0) event_.shape.emplace();
    ++depth_;
    if (depth_ <= kDeepestKey) keys_[static_cast<size_t>(depth_)].clear();
    return true;
  }

  bool in_arguments(const char* key) const {
    return root_ == "traceEvents" && keys_[3] == "args" && keys_[4] == key;
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
    else if (depth_ == 5 && in_arguments("Input type") && event_.types++ == 0)
      event_.type = std::move(text);
    else if (depth_ == 6 && in_arguments("Input Dims") && event_.shapes == 1)
      of_shape(number);
    else if (root_ == "distributedInfo")
      of_job(std::move(text), number);
    else if (root_ == "baseTimeNanoseconds" && depth_ == 1 && number)
      base_us_ = *number * 1e-3;
    return true;
  }

  void of_shape(const std::optional<double>& size) {
    if (!event_.shape) return;
    if (size && *size >= 0 && *size < kMostSize && event_.shape->size() < kMostDimensions)
      event_.shape->push_back(static_cast<int64_t>(*size));
    else
      event_.shape.reset();
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
    else if (key == "Sequence number")
      event_.node = number;
  }

  void take(const kineto::ProfilerEvent& event) {
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
    if (event.category == "communication" && kineto::is_communication(event.name))
      annotated_.push_back(call_of(event, {begin, end}));
    take_training(event, {begin, end});
    const kineto::Activity on_gpu = kineto::activity_on_gpu(event);
    if (on_gpu != kineto::Activity::none)
      take_kernel(event, on_gpu, {begin, end});
    else if (!trace_->on_gpu)
      take_of_cpu(event, {begin, end});
  }

  void take_training(const kineto::ProfilerEvent& event, const TraceInterval& time) {
    const bool copy = event.category == "gpu_memcpy" || event.category == "gpu_memset";
    if (event.correlation && (copy || kineto::activity_on_gpu(event) == kineto::Activity::compute))
      device_work_.push_back({number_of(event.correlation), time.end_us});
    const auto what = kineto::training_event(event);
    if (!what) return;
    const auto thread =
        threads_.emplace(event.thread, static_cast<int64_t>(threads_.size())).first->second;
    TraceTraining one{*what, time, thread, number_of(event.node), {}, {}};
    if (what == TrainingEvent::gradient) {
      one.shape = event.shape;
      one.dtype = kineto::dtype_of(event.type);
      one.defined = !event.type.empty();
    }
    trace_->training.push_back(std::move(one));
  }

  // What was launched before the profiler began has no launch.
  void fill_device_work() {
    std::unordered_map<int64_t, double> launches;
    for (const Launch& launch : launched_) launches.emplace(launch.number, launch.at_us);
    for (const Launch& work : device_work_) {
      const auto launch = launches.find(work.number);
      if (launch != launches.end()) trace_->device_work.push_back({launch->second, work.at_us});
    }
    std::stable_sort(trace_->device_work.begin(), trace_->device_work.end(),
                     [](const TraceDeviceWork& a, const TraceDeviceWork& b) {
                       return a.launched_us < b.launched_us;
                     });
    double done_us = 0;
    for (TraceDeviceWork& work : trace_->device_work)
      work.done_us = done_us = std::max(done_us, work.done_us);
  }

  // What the CPU did beside its kernels is not counted.
  void take_kernel(const kineto::ProfilerEvent& event, kineto::Activity activity,
                   const TraceInterval& time) {
    if (!std::exchange(trace_->on_gpu, true)) {
      trace_->communication.clear();
      trace_->calls.clear();
      by_thread_.clear();
    }
    if (activity == kineto::Activity::compute) {
      trace_->compute.push_back(time);
      launches_.push_back(number_of(event.correlation));
    } else {
      take_call(event, time);
    }
  }

  void take_of_cpu(const kineto::ProfilerEvent& event, const TraceInterval& time) {
    const kineto::Activity activity = kineto::activity_on_cpu(event);
    if (activity == kineto::Activity::compute) by_thread_[event.thread].push_back(time);
    if (activity != kineto::Activity::communication) return;
    communicating_.insert(event.thread);
    take_call(event, time);
  }

  void take_call(const kineto::ProfilerEvent& event, const TraceInterval& time) {
    trace_->communication.push_back(time);
    trace_->calls.push_back(call_of(event, time));
    if (!event.group.empty() && !event.description.empty())
      trace_->groups[event.group] = event.description;
  }

  static TraceCall call_of(const kineto::ProfilerEvent& event, const TraceInterval& time) {
    TraceCall call;
    call.group = event.group;
    call.operation = kineto::operation_of(event.collective.empty() ? event.name : event.collective);
    call.sizes = event.elements_in + "/" + event.elements_out + "/" + event.splits;
    call.dtypes = event.dtype;
    call.sequence = number_of(event.sequence);
    call.point_to_point = kineto::is_one_of(call.operation, {"send", "recv", "send_recv"});
    call.launch = number_of(event.correlation);
    call.bytes = kineto::bytes_of_input(event);
    call.time = time;
    return call;
  }

  // As HolisticTraceAnalysis does: kernels of before the first step, which the profiler caught
  // while it began, are of no step.
  void keep_launched() {
    if (!trace_->on_gpu || trace_->steps.size() < 2 || launched_.empty()) return;
    std::unordered_set<int64_t> known;
    for (const Launch& launch : launched_)
      if (launch.at_us <= last_step_us_) known.insert(launch.number);
    std::vector<TraceInterval> compute;
    for (size_t i = 0; i < launches_.size(); ++i)
      if (known.contains(launches_[i])) compute.push_back(trace_->compute[i]);
    trace_->compute = std::move(compute);
    std::erase_if(trace_->calls,
                  [&](const TraceCall& call) { return !known.contains(call.launch); });
    trace_->communication.clear();
    for (const TraceCall& call : trace_->calls) trace_->communication.push_back(call.time);
  }

  KinetoTrace* const trace_;
  UnpackedBytes* const bytes_;                     // null: all of it is in memory
  int depth_ = 0;                                  // of what is open
  std::string root_;                               // the document's member
  std::array<std::string, kDeepestKey + 1> keys_;  // by depth
  kineto::ProfilerEvent event_;
  std::pair<std::string, std::string> group_;
  std::optional<double> rank_;
  bool has_events_ = false;
  struct Launch {
    int64_t number;
    double at_us;
  };
  std::vector<TraceCall> annotated_;  // by lockstep's own traces, over Gloo
  std::vector<Launch> launched_;      // what the CPU launched
  std::vector<int64_t> launches_;     // of trace_->compute
  std::vector<Launch> device_work_;   // kernels and copies, by their ends
  std::unordered_map<std::string, int64_t> threads_;
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
  if (auto error = read_streamed(begin, end, bytes, path, kTraceAllowed, &reader)) return *error;
  if (!reader.has_events()) return file_error(path, "holds no \"traceEvents\"", kTraceAllowed);
  reader.finish();
  std::sort(trace.steps.begin(), trace.steps.end(),
            [](const TraceInterval& a, const TraceInterval& b) { return a.begin_us < b.begin_us; });
  std::stable_sort(
      trace.calls.begin(), trace.calls.end(),
      [](const TraceCall& a, const TraceCall& b) { return a.time.begin_us < b.time.begin_us; });
  const std::optional<double> rank = reader.rank();
  if (rank && *rank >= 0 && *rank < 1e9) trace.rank = static_cast<int64_t>(*rank);
  std::stable_sort(trace.training.begin(), trace.training.end(),
                   [](const TraceTraining& a, const TraceTraining& b) {
                     return a.time.begin_us < b.time.begin_us;
                   });
  return trace;
}

}  // namespace

bool is_kineto_head(std::string_view head) {
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || head[first] != '{') return false;
  const auto holds = [&](const char* word) { return head.find(word) != std::string_view::npos; };
  return holds("\"traceEvents\"") || (holds("\"schemaVersion\"") && holds("\"deviceProperties\""));
}

bool is_kineto_trace(const std::string& path) {
  const auto bytes = UnpackedBytes::open(path);
  if (!bytes) return false;
  std::string head;
  try {
    for (; head.size() < kHeadBytes && !bytes.value()->ended(); bytes.value()->advance())
      head += bytes.value()->peek();
  } catch (const TooMuch&) {
    return false;
  }
  return is_kineto_head(head);
}

Expected<KinetoTrace> read_kineto_trace(const std::string& path) {
  return read_streamed_file<KinetoTrace>(path, kTraceAllowed,
                                         [](auto... from) { return parse(std::move(from)...); });
}

Expected<KinetoTrace> kineto_trace_of(const std::string& bytes, const std::string& path) {
  return parse(bytes.begin(), bytes.end(), nullptr, path);
}

}  // namespace lockstep
