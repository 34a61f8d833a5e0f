#include "sim/tools/explain/chakra_trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/base/streamed_json.h"
#include "scenarios/base/text.h"
#include "scenarios/base/unpacked_bytes.h"
#include "sim/tools/explain/chakra_nodes.h"

namespace lockstep {
namespace {

using ChakraJson = nlohmann::json;

constexpr const char* kAllowed = "an execution trace of Chakra, in JSON or protobuf (.et)";
constexpr int kSendType = 5, kReceiveType = 6;
constexpr int64_t kMessagesMost = int64_t{1} << 30;
constexpr size_t kMostTracesTold = 16;

// Of PyTorch's trace, which has no types: the backend's own call. record_param_comms and c10d's
// stand for the same one.
bool is_backend_call(const std::string& name) {
  constexpr std::array<std::string_view, 5> kBackends = {
      "nccl:", "gloo:", "rccl:", "hccl:", "xccl:"};
  return std::any_of(kBackends.begin(), kBackends.end(),
                     [&](std::string_view backend) { return name.starts_with(backend); });
}

// Adds up nodes as the document is read; nothing else of it is kept.
class ChakraReader : public nlohmann::json_sax<ChakraJson> {
 public:
  explicit ChakraReader(UnpackedBytes* bytes) : bytes_(bytes) {}

  bool null() override { return true; }
  bool boolean(bool value) override { return number(value ? 1 : 0); }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& text) override {
    pause();
    if (!in_node()) return true;
    if (key_ == "Name" || key_ == "name")
      node_.name = std::move(text);
    else if (key_ == "type" && text == "COMM_COLL_NODE")
      node_.type = kChakraCollective;
    return true;
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool key(string_t& name) override {
    pause();
    (depth_ == 1 ? root_ : key_) = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const ChakraJson::exception&) override {
    return false;
  }

  bool has_nodes() const { return has_nodes_; }
  ChakraTrace finish(const std::string& file) const { return nodes_.finish(file); }

 private:
  void pause() {
    if (bytes_ != nullptr) bytes_->pause();
  }
  bool in_nodes() const { return root_ == "workload_graph" || root_ == "nodes"; }
  bool in_node() const { return depth_ == 3 && in_nodes(); }

  bool number(double value) {
    pause();
    if (!in_node()) return true;
    const bool sane = value >= 0 && value < kChakraLongest;
    if ((key_ == "NodeType" || key_ == "type") && sane && value < 100)
      node_.type = static_cast<int>(value);
    if ((key_ == "runtime" || key_ == "duration_micros" || key_ == "durationMicros") && sane)
      node_.micros = value;
    if (key_ == "is_cpu_op") node_.on_cpu = value != 0;
    return true;
  }

  bool open() {
    pause();
    has_nodes_ |= depth_ == 1 && in_nodes();
    if (depth_ == 2 && in_nodes()) node_ = {};
    ++depth_;
    return true;
  }
  bool close() {
    pause();
    --depth_;
    if (depth_ != 2 || !in_nodes()) return true;
    nodes_.add(node_);
    return true;
  }

  UnpackedBytes* const bytes_;  // null: all of it is in memory
  int depth_ = 0;               // of what is open
  std::string root_, key_;      // of the document, and of what is innermost
  bool has_nodes_ = false;
  ChakraNode node_;
  ChakraNodes nodes_;
};

// Throws TooMuch. `bytes`: null where the text is in memory.
template <class Iterator>
Expected<ChakraTrace> parse(Iterator begin, Iterator end, UnpackedBytes* bytes,
                            const std::string& path) {
  ChakraReader reader(bytes);
  if (auto error = read_streamed(begin, end, bytes, path, kAllowed, &reader)) return *error;
  if (!reader.has_nodes())
    return file_error(path, "holds neither \"workload_graph\" nor \"nodes\"", kAllowed);
  return reader.finish(path);
}

std::string told(const ChakraTrace& trace) {
  const std::string name = std::filesystem::path(trace.file).filename().string();
  const std::string counts =
      fmt::format("{}: {} {}, {} {}", name, trace.nodes, plural(trace.nodes, "node"),
                  trace.collectives, plural(trace.collectives, "collective"));
  if (!trace.timed) return counts + ", whose times are not in the trace";
  return fmt::format("{}; {:.1f} ms of compute, {:.1f} ms of communication, overlapping or not",
                     counts, trace.compute_ms, trace.communication_ms);
}

}  // namespace

void ChakraNodes::Sum::add(const ChakraNode& node) {
  const bool collective = node.type == kChakraCollective || is_backend_call(node.name);
  ++nodes;
  collectives += collective ? 1 : 0;
  timed |= node.micros >= 0;
  if (node.micros < 0) return;
  const bool communicates = collective || node.type == kSendType || node.type == kReceiveType;
  (communicates ? communication_us : compute_us) += node.micros;
}

ChakraTrace ChakraNodes::finish(const std::string& file) const {
  ChakraTrace trace;
  const Sum& sum = kernels_.nodes > 0 ? kernels_ : all_;
  trace.file = file;
  trace.nodes = all_.nodes;
  trace.collectives = sum.collectives;
  trace.compute_ms = sum.compute_us * 1e-3;
  trace.communication_ms = sum.communication_us * 1e-3;
  trace.timed = sum.timed;
  return trace;
}

bool is_chakra_head(std::string_view head) {
  if (is_chakra_messages(head)) return true;
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || head[first] != '{') return false;
  if (head.find("\"workload_graph\"") != std::string_view::npos) return true;
  const size_t schema = head.find("\"schema\"");
  return schema != std::string_view::npos &&
         head.substr(schema, 64).find("chakra") != std::string_view::npos;
}

Expected<ChakraTrace> read_chakra_trace(const std::string& path) {
  auto file = open_foreign_file(path, kMessagesMost);
  std::string head(file ? static_cast<size_t>(std::min<int64_t>(file.value().bytes, 64)) : 0, '\0');
  if (file && read_at(file.value().fd.get(), 0, head.data(), head.size()) &&
      is_chakra_messages(head)) {
    const auto bytes = read_foreign_file(path, kMessagesMost);
    if (!bytes) return bytes.errors();
    return chakra_messages_of(bytes.value(), path);
  }
  return read_streamed_file<ChakraTrace>(path, kAllowed,
                                         [](auto... from) { return parse(std::move(from)...); });
}

Expected<ChakraTrace> chakra_trace_of(const std::string& bytes, const std::string& path) {
  if (is_chakra_messages(bytes)) return chakra_messages_of(bytes, path);
  return parse(bytes.begin(), bytes.end(), nullptr, path);
}

void tell_chakra(const std::vector<ChakraTrace>& traces, bool alone, FlightFinding* finding) {
  for (size_t i = 0; i < std::min(traces.size(), kMostTracesTold); ++i)
    finding->evidence.push_back(told(traces[i]));
  if (traces.size() > kMostTracesTold)
    finding->evidence.push_back(fmt::format("and {} more traces", traces.size() - kMostTracesTold));
  if (!traces.empty() && alone)
    leave_undecided({},
                    "start times of the calls, which Chakra's traces lack; traces of "
                    "torch.profiler and flight recorder dumps have them",
                    finding);
}

}  // namespace lockstep
