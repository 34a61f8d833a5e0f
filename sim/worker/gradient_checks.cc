#include "sim/worker/gradient_checks.h"

#include <map>

namespace lockstep {
namespace {

const void* storage_of(const at::Tensor& gradient) {
  return gradient.storage().unsafeGetStorageImpl();
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
  std::map<const void*, std::string> parameters;
  for (const NamedTensor& parameter : training.parameters) {
    if (parameter.tensor.numel() == 0) continue;
    const auto [other, fresh] = parameters.try_emplace(parameter.tensor.data_ptr(), parameter.name);
    if (!fresh) return other->second + " and " + parameter.name + " share memory";
  }
  const bool views = keeps_views(scenario);
  std::map<int64_t, const void*> bucket_storage;
  std::map<const void*, std::string> owners;
  for (size_t p = 0; p < training.parameters.size(); ++p) {
    const NamedTensor& parameter = training.parameters[p];
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined() || gradient.is_sparse()) continue;  // a sparse one is never a view
    const void* storage = storage_of(gradient);
    const int64_t bucket = probe.bucket_of(static_cast<int64_t>(p));
    if (views && bucket >= 0 &&
        bucket_storage.try_emplace(bucket, storage).first->second != storage)
      return "the gradient of " + parameter.name + " is no view into its bucket";
    const auto [owner, fresh] = owners.try_emplace(storage, parameter.name);
    if (!views && !fresh)
      return "the gradients of " + owner->second + " and " + parameter.name + " share storage";
  }
  return "";
}

}  // namespace lockstep
