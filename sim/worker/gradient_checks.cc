#include "sim/worker/gradient_checks.h"

#include <map>
#include <set>
#include <vector>

#include "sim/worker/memory_spans.h"

namespace lockstep {
namespace {

const void* storage_of(const at::Tensor& gradient) {
  return gradient.storage().unsafeGetStorageImpl();
}

MemorySpan span_of(const std::string& name, const at::Tensor& tensor) {
  return {name,
          tensor.device().index(),
          reinterpret_cast<uint64_t>(tensor.data_ptr()),
          tensor.element_size(),
          tensor.sizes().vec(),
          tensor.strides().vec()};
}

// Of parameters and gradients. One tensor under two names is one parameter, updated once.
std::vector<MemorySpan> spans_of(const Training& training) {
  std::vector<MemorySpan> spans;
  std::set<const void*> known;
  for (const NamedTensor& parameter : training.parameters) {
    if (!known.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
    if (!parameter.tensor.is_sparse()) spans.push_back(span_of(parameter.name, parameter.tensor));
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined() || gradient.is_sparse()) continue;  // has no memory of its shape
    spans.push_back(span_of("the gradient of " + parameter.name, gradient));
  }
  return spans;
}

std::string shared_memory(const Training& training) {
  const std::vector<MemorySpan> spans = spans_of(training);
  for (const MemorySpan& span : spans)
    if (overlaps_itself(span)) return "elements of " + span.name + " share memory";
  const auto overlap = first_overlap(spans);
  if (!overlap) return "";
  return spans[overlap->first].name + " and " + spans[overlap->second].name + " share memory";
}

bool keeps_views(const Scenario& scenario) {
  const bool has_buckets = scenario.reducer.kind == "bucketed" || scenario.reducer.kind == "c10d";
  return has_buckets && scenario.reducer.options.flag("gradient_as_bucket_view");
}

}  // namespace

std::string absent_gradient(const Scenario& scenario, const Training& training) {
  const Options& reducer = scenario.reducer.options;
  if (reducer.flag("find_unused_parameters") || reducer.flag("static_graph")) return "";
  for (const NamedTensor& parameter : training.parameters)
    if (parameter.tensor.requires_grad() && !parameter.tensor.grad().defined())
      return parameter.name + " has no gradient";
  return "";
}

std::string wrong_aliasing(const Scenario& scenario, const Training& training,
                           const RecordingProbe& probe) {
  const std::string shared = shared_memory(training);
  if (!shared.empty() || !keeps_views(scenario)) return shared;
  std::map<int64_t, const void*> bucket_storage;
  for (size_t p = 0; p < training.parameters.size(); ++p) {
    const NamedTensor& parameter = training.parameters[p];
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined() || gradient.is_sparse()) continue;  // a sparse one is never a view
    const int64_t bucket = probe.bucket_of(static_cast<int64_t>(p));
    const void* storage = storage_of(gradient);
    if (bucket >= 0 && bucket_storage.try_emplace(bucket, storage).first->second != storage)
      return "the gradient of " + parameter.name + " is no view into its bucket";
  }
  return "";
}

}  // namespace lockstep
