#include "sim/analysis/pipeline_trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "scenarios/base/text.h"

namespace lockstep {

const char* to_word(OpKind kind) {
  switch (kind) {
    case OpKind::params_all_gather:
      return "params-all-gather";
    case OpKind::forward_recv:
      return "forward-recv";
    case OpKind::forward_compute:
      return "forward-compute";
    case OpKind::forward_send:
      return "forward-send";
    case OpKind::backward_recv:
      return "backward-recv";
    case OpKind::backward_compute:
      return "backward-compute";
    case OpKind::backward_send:
      return "backward-send";
    case OpKind::gc:
      return "gc";
    case OpKind::layernorm_grads_all_reduce:
      return "layernorm-grads-all-reduce";
    case OpKind::embedding_grads_all_reduce:
      return "embedding-grads-all-reduce";
    case OpKind::grads_reduce_scatter:
      return "grads-reduce-scatter";
    case OpKind::optimizer_clip_main_grad:
      return "optimizer-clip-main-grad";
    case OpKind::optimizer:
      return "optimizer";
  }
  return "";
}

bool is_compute(OpKind kind) {
  return kind == OpKind::forward_compute || kind == OpKind::backward_compute ||
         kind == OpKind::gc || kind == OpKind::optimizer;
}

std::string worker_of(const TraceOp& op) {
  return fmt::format("step {}, data-parallel rank {}, stage {}", op.step, op.dp_rank, op.stage);
}

namespace {

using TraceJson = nlohmann::json;
// More ranks, stages or operations of a kind than any training has: a damaged number.
constexpr int64_t kMost = 1'000'000;

std::optional<OpKind> kind_of_event(const std::string& word) {
  for (size_t i = 0; i < kOpKinds; ++i)
    if (word == to_word(static_cast<OpKind>(i))) return static_cast<OpKind>(i);
  return std::nullopt;
}

std::string known_kinds() {
  std::vector<std::string> words;
  for (size_t i = 0; i < kOpKinds; ++i) words.emplace_back(to_word(static_cast<OpKind>(i)));
  return quoted_list(words);
}

// Takes event by event, so that the document as a whole never exists.
class Events {
 public:
  explicit Events(std::string path) : path_(std::move(path)) {}

  // False: not needed any more.
  bool take(const TraceJson& event) {
    const size_t place = count_++;
    if (error_) return false;
    if (!event.is_object()) return bad(place, "", "is no object", "a trace event");
    const auto phase = event.find("ph");
    if (phase == event.end() || !phase->is_string())
      return bad(place, "/ph", "is missing or no text", "\"X\" or \"M\"");
    if (*phase == "X") take_op(place, event);
    if (*phase == "M" && event.value("name", TraceJson()) == "thread_name") take_name(place, event);
    return false;
  }

  Expected<PipelineTrace> finish() {
    std::set<int64_t> steps;
    for (size_t i = 0; i < trace_.ops.size() && !error_; ++i) {
      TraceOp& op = trace_.ops[i];
      const auto stage = stages_.find(threads_[i]);
      if (stage == stages_.end()) {
        bad(places_[i], "/tid", "is a thread without a thread_name event", "");
        break;
      }
      op.stage = stage->second;
      trace_.stages = std::max(trace_.stages, op.stage + 1);
      trace_.dp_ranks = std::max(trace_.dp_ranks, op.dp_rank + 1);
      steps.insert(op.step);
    }
    if (!error_ && trace_.ops.empty()) bad_file("there is no operation in it");
    if (error_) return *error_;
    trace_.steps = static_cast<int64_t>(steps.size());
    return std::move(trace_);
  }

  bool bad_file(const std::string& why) {
    error_ = InputError{path_, 0, 0, "", why, "trace events of a pipeline-parallel training"};
    return false;
  }

 private:
  bool bad(size_t place, const std::string& field, const std::string& why,
           const std::string& allowed) {
    const std::string pointer = fmt::format("/{}{}", place, field);
    error_ = InputError{path_, 0, 0, pointer, fmt::format("{} {}", pointer, why), allowed};
    return false;
  }

  const TraceJson* field(size_t place, const TraceJson& event, const char* pointer, bool integer) {
    const TraceJson::json_pointer at(pointer);
    const char* allowed = integer ? "an integer" : "a number";
    if (!event.contains(at)) {
      bad(place, pointer, "is missing", allowed);
      return nullptr;
    }
    const TraceJson& value = event.at(at);
    if (integer ? !value.is_number_integer() : !value.is_number()) {
      bad(place, pointer, fmt::format("is {}", value.dump(-1, ' ', true).substr(0, 60)), allowed);
      return nullptr;
    }
    return &value;
  }
  int64_t integer(size_t place, const TraceJson& event, const char* pointer, int64_t least,
                  int64_t most) {
    const TraceJson* value = error_ ? nullptr : field(place, event, pointer, true);
    if (value == nullptr) return 0;
    const auto number = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX
                            ? INT64_MAX
                            : value->get<int64_t>();
    if (number < least || number > most)
      bad(place, pointer, fmt::format("is {}", value->dump()),
          fmt::format("an integer from {} to {}", least, most));
    return number;
  }
  double number(size_t place, const TraceJson& event, const char* pointer, double least) {
    const TraceJson* value = error_ ? nullptr : field(place, event, pointer, false);
    if (value == nullptr) return 0;
    const auto number = value->get<double>();
    if (!std::isfinite(number) || number < least || number > 1e15)
      bad(place, pointer, fmt::format("is {}", value->dump()),
          fmt::format("microseconds{}, 1e15 at most", least == 0 ? " >= 0" : ""));
    return number;
  }

  void take_op(size_t place, const TraceJson& event) {
    const auto name = event.find("name");
    const auto kind =
        name != event.end() && name->is_string() ? kind_of_event(*name) : std::nullopt;
    if (!kind) {
      const std::string word = name != event.end() ? name->dump(-1, ' ', true) : "missing";
      bad(place, "/name", fmt::format("is {}", word.substr(0, 60)), known_kinds());
      return;
    }
    TraceOp op;
    op.kind = *kind;
    op.dp_rank = integer(place, event, "/pid", 0, kMost);
    const int64_t thread = integer(place, event, "/tid", INT64_MIN, INT64_MAX);
    op.begin_us = number(place, event, "/ts", -1e15);
    op.duration_us = number(place, event, "/dur", 0);
    op.step = integer(place, event, "/args/step", 0, INT64_MAX);
    op.sequence = integer(place, event, "/args/seq_id", 0, kMost);
    if (integer(place, event, "/args/model_chunk", -1, kMost) > 0)
      bad(place, "/args/model_chunk", "is above 0: interleaved stages cannot be replayed",
          "one model chunk a stage");
    trace_.ops.push_back(op);
    threads_.emplace_back(op.dp_rank, thread);
    places_.push_back(place);
  }

  void take_name(size_t place, const TraceJson& event) {
    const int64_t dp_rank = integer(place, event, "/pid", 0, kMost);
    const int64_t thread = integer(place, event, "/tid", INT64_MIN, INT64_MAX);
    if (error_) return;
    const std::string prefix = "PP rank ";
    const TraceJson::json_pointer at("/args/name");
    const bool named = event.contains(at) && event.at(at).is_string();
    const std::string text = named ? event.at(at).get<std::string>() : "";
    size_t end = prefix.size();
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    const size_t digits = end - std::min(end, prefix.size());
    if (!text.starts_with(prefix) || digits == 0 || digits > 6) {
      bad(place, "/args/name", "tells no stage", "\"PP rank N, ...\"");
      return;
    }
    stages_[{dp_rank, thread}] = std::stoll(text.substr(prefix.size(), digits));
  }

  const std::string path_;
  PipelineTrace trace_;
  std::vector<std::pair<int64_t, int64_t>> threads_;  // by operation
  std::vector<size_t> places_;                        // ... of the event that it was
  std::map<std::pair<int64_t, int64_t>, int64_t> stages_;
  size_t count_ = 0;
  std::optional<InputError> error_;
};

// Deeper nesting and larger events than any tracer writes: a stranger's.
constexpr int kDeepest = 100;
constexpr size_t kMostValuesOfEvent = 10'000;

InputError error_at(const UnpackedBytes& bytes, const std::string& path,
                    const std::string& message) {
  return {path, bytes.line(), bytes.column(), "", message, "an array of trace events"};
}

// Throws TooMuch.
Expected<PipelineTrace> parse(UnpackedBytes* bytes, const std::string& path) {
  using Parsed = TraceJson::parse_event_t;
  Events events(path);
  size_t values = 0;
  const auto callback = [&](int depth, Parsed what, const TraceJson& parsed) {
    bytes->pause();
    if (depth > kDeepest) throw TooMuch(fmt::format("nested deeper than {} levels", kDeepest));
    if (++values > kMostValuesOfEvent)
      throw TooMuch(fmt::format("one event has more than {} values", kMostValuesOfEvent));
    const bool complete =
        what == Parsed::object_end || what == Parsed::array_end || what == Parsed::value;
    if (depth != 1 || !complete) return true;
    values = 0;
    return events.take(parsed);
  };
  try {
    const TraceJson rest = TraceJson::parse(bytes->begin(), bytes->end(), callback);
    if (!rest.is_array()) events.bad_file("it holds no array");
  } catch (const TraceJson::parse_error&) {
    const bool cut_off = bytes->ended();
    const InputError error =
        error_at(*bytes, path, cut_off ? "the JSON document is cut off" : "this is no JSON");
    bytes->look_for_damage();
    return bytes->problem().empty() ? error : file_error(path, bytes->problem());
  } catch (const TraceJson::exception& error) {  // a number that no double holds
    events.bad_file(printable(error.what()));
  }
  if (!bytes->problem().empty()) return file_error(path, bytes->problem());
  return events.finish();
}

}  // namespace

Expected<PipelineTrace> read_pipeline_trace(const std::string& path, int64_t unpacked_always) {
  const auto bytes = UnpackedBytes::open(path, unpacked_always);
  if (!bytes) return bytes.errors();
  try {
    return parse(bytes.value().get(), path);
  } catch (const TooMuch& error) {
    return error_at(*bytes.value(), path, error.what());
  }
}

}  // namespace lockstep
