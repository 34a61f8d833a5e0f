#include "scenarios/profiler/kineto_event.h"

#include <algorithm>
#include <array>

namespace lockstep::kineto {
namespace {

bool begins_with_one_of(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
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

}  // namespace

std::string dtype_of(const std::string& type) {
  constexpr std::array<std::array<std::string_view, 2>, 4> kTypes{{{"float", "float32"},
                                                                   {"double", "float64"},
                                                                   {"c10::BFloat16", "bfloat16"},
                                                                   {"c10::Half", "float16"}}};
  for (const auto& [word, dtype] : kTypes)
    if (type == word) return std::string(dtype);
  return "";
}

int64_t bytes_of_input(const ProfilerEvent& event) {
  const std::string dtype = dtype_of(event.type);
  if (!event.shape || dtype.empty()) return -1;
  double bytes = dtype == "float64" ? 8 : dtype == "float32" ? 4 : 2;
  for (const int64_t size : *event.shape) bytes *= static_cast<double>(size);
  return bytes < 1e15 ? static_cast<int64_t>(bytes) : -1;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
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

std::optional<TrainingEvent> training_event(const ProfilerEvent& event) {
  if (event.category == "user_annotation") {
    if (event.name == "DistributedDataParallel.forward") return TrainingEvent::forward;
    if (event.name.starts_with("Optimizer.step#")) return TrainingEvent::update;
    return std::nullopt;
  }
  if (event.category != "cpu_op") return std::nullopt;
  if (event.name == "torch::autograd::AccumulateGrad") return TrainingEvent::gradient;
  if (event.name.starts_with("c10d::allreduce_")) return TrainingEvent::launch;
  const bool of_graph = event.name.starts_with("autograd::engine::evaluate_function:");
  return of_graph && event.node ? std::optional(TrainingEvent::node) : std::nullopt;
}

std::string operation_of(const std::string& name) {
  for (const auto& [part, operation] : kOperationWords)
    if (name.find(part) != std::string::npos) return std::string(operation);
  const size_t colon = name.find(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

}  // namespace lockstep::kineto
