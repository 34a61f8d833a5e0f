#include "sim/worker/gradient_checks.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "scenarios/workloads/devices.h"

namespace lockstep {
namespace {

int64_t elements_of(const MemorySpan& span) {
  return std::accumulate(span.sizes.begin(), span.sizes.end(), int64_t{1}, std::multiplies<>());
}

// First byte, and the one behind the last; strides of a tensor are not negative.
std::pair<uint64_t, uint64_t> range_of(const MemorySpan& span) {
  int64_t last = 0;
  for (size_t i = 0; i < span.sizes.size(); ++i) last += (span.sizes[i] - 1) * span.strides[i];
  return {span.address, span.address + static_cast<uint64_t>((last + 1) * span.element_bytes)};
}

// Without holes: its elements fill their range, each place once.
bool is_dense(const MemorySpan& span) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride, size
  for (size_t i = 0; i < span.sizes.size(); ++i)
    if (span.sizes[i] != 1) dimensions.emplace_back(span.strides[i], span.sizes[i]);
  std::sort(dimensions.begin(), dimensions.end());
  int64_t wanted = 1;
  for (const auto& [stride, size] : dimensions) {
    if (stride != wanted) return false;
    wanted *= size;
  }
  return true;
}

// Of every element, ascending.
std::vector<uint64_t> addresses_of(const MemorySpan& span) {
  std::vector<uint64_t> found = {span.address};
  for (size_t i = 0; i < span.sizes.size(); ++i) {
    const size_t before = found.size();
    for (int64_t index = 1; index < span.sizes[i]; ++index)
      for (size_t j = 0; j < before; ++j)
        found.push_back(found[j] +
                        static_cast<uint64_t>(index * span.strides[i] * span.element_bytes));
  }
  std::sort(found.begin(), found.end());
  return found;
}

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

bool overlaps_itself(const MemorySpan& span) {
  if (elements_of(span) < 2 || is_dense(span)) return false;
  const std::vector<uint64_t> addresses = addresses_of(span);
  return std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end();
}

bool overlap(const MemorySpan& a, const MemorySpan& b) {
  if (a.device != b.device || elements_of(a) == 0 || elements_of(b) == 0) return false;
  const auto [a_begin, a_end] = range_of(a);
  const auto [b_begin, b_end] = range_of(b);
  if (a_end <= b_begin || b_end <= a_begin) return false;
  if (is_dense(a) && is_dense(b)) return true;
  // Such as two columns of one matrix.
  const std::vector<uint64_t> of_a = addresses_of(a), of_b = addresses_of(b);
  for (size_t i = 0, j = 0; i < of_a.size() && j < of_b.size();) {
    if (of_a[i] + static_cast<uint64_t>(a.element_bytes) <= of_b[j])
      ++i;
    else if (of_b[j] + static_cast<uint64_t>(b.element_bytes) <= of_a[i])
      ++j;
    else
      return true;
  }
  return false;
}

std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<MemorySpan>& spans) {
  std::vector<size_t> order;
  for (size_t i = 0; i < spans.size(); ++i)
    if (elements_of(spans[i]) > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(spans[a].device, spans[a].address) <
           std::pair(spans[b].device, spans[b].address);
  });
  std::optional<std::pair<size_t, size_t>> first;
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j) {
      const MemorySpan &a = spans[order[i]], &b = spans[order[j]];
      if (a.device != b.device || b.address >= range_of(a).second) break;
      if (!overlap(a, b)) continue;
      const std::pair<size_t, size_t> found = std::minmax(order[i], order[j]);
      if (!first || found < *first) first = found;
    }
  return first;
}

LocalGradients::LocalGradients(const Training& training, const StateLayout& layout) {
  bytes_.resize(static_cast<size_t>(gradients_end(layout)));
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != StateKind::gradient) continue;
    at::Tensor parameter = training.parameters[static_cast<size_t>(entry.parameter)].tensor;
    if (!parameter.requires_grad()) continue;
    const at::Tensor place = at::from_blob(bytes_.data() + entry.offset, parameter.sizes(),
                                           at::dtype(parameter.scalar_type()));
    hooks_.add(parameter, [place](const at::Tensor& gradient) {
      const c10::NoGradGuard no_grad;
      at::Tensor(place).add_(on_host(gradient));
      return at::Tensor();
    });
    sums_.push_back({{entry.name, parameter}, place});
  }
}

std::string LocalGradients::lost() const {
  const c10::NoGradGuard no_grad;
  for (const auto& [parameter, sum] : sums_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    const at::Tensor held = gradient.defined() ? on_host(gradient) : at::zeros_like(sum);
    if (!at::equal(held.is_sparse() ? held.to_dense() : held, sum)) return parameter.name;
  }
  return "";
}

void LocalGradients::clear() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0}); }

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
