#include "reducer/c10d/c10d_reducer.h"
#include "reducer/kinds/bucketed.h"
#include "reducer/kinds/composite.h"
#include "reducer/kinds/manual.h"
#include "reducer/kinds/sharded.h"
#include "reducer/registry.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

BucketLayout one_a_parameter_in_reverse(size_t parameters) {
  BucketLayout layout;
  for (size_t p = parameters; p > 0; --p) layout.push_back({static_cast<int64_t>(p - 1)});
  return layout;
}

// Gradients of one process are sums already (reducer/data_parallel.h).
class NothingToReduce : public Reducer {
 public:
  void before_forward(bool) override {}
  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override {}
};

// Every rank trains for itself, from the same weights.
class NoReducer : public ReducerBase {
 public:
  NoReducer(const ReducerOptions& options, const NamedTensors& parameters,
            const NamedTensors& buffers, Communicator& communicator, Probe& probe)
      : ReducerBase(options, parameters, buffers, communicator, probe) {}
  void before_forward(bool) override {}
  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override {}
};

}  // namespace

BucketPolicy bucket_policy(const ReducerOptions& options, const TrainedParameters& parameters) {
  BucketPolicy policy;
  if (options.kind == "per_parameter") {
    policy.layout = one_a_parameter_in_reverse(parameters.tensors.size());
    policy.divide = true;
    return policy;
  }
  const auto items = bucket_items(parameters);
  const bool is_flat = options.kind == "flat";
  const bool one_bucket_first = is_flat || options.static_graph || !options.find_unused_parameters;
  policy.layout = layout_at_construction(items, one_bucket_first, options.first_bucket_bytes,
                                         options.bucket_cap_bytes);
  if (is_flat) return policy;
  policy.rebuild = one_bucket_first;
  policy.bucket_view = options.gradient_as_bucket_view;
  policy.search_unused = options.find_unused_parameters || options.static_graph;
  policy.write_back_early = options.write_back == "per_bucket" && !policy.search_unused;
  policy.count_uses = options.static_graph;
  return policy;
}

std::unique_ptr<Reducer> make_reducer(const ReducerOptions& options, const NamedTensors& parameters,
                                      const NamedTensors& buffers, Communicator& communicator,
                                      Probe& probe) {
  const std::string& kind = options.kind;
  if (!options.ignored.empty() || !options.wrapped_modules.empty())
    return make_several(options, parameters, buffers, communicator, probe);
  if (kind == "c10d") {
    return make_c10d_reducer(options, parameters, buffers, communicator, probe);
  }
  if (kind == "manual") {
    return std::make_unique<ManualReducer>(options, parameters, buffers, communicator, probe);
  }
  if (kind == "data_parallel") return std::make_unique<NothingToReduce>();
  if (kind == "none") {
    return std::make_unique<NoReducer>(options, parameters, buffers, communicator, probe);
  }
  if (kind == "sharded") {
    return std::make_unique<ShardedReducer>(options, parameters, buffers, communicator, probe);
  }
  if (kind == "registered")
    return make_registered_reducer({parameters, buffers, communicator, probe, options});
  LOCKSTEP_CHECK(kind == "bucketed" || kind == "flat" || kind == "per_parameter",
                 "unknown kind of reducer " + kind);
  return std::make_unique<BucketedReducer>(options, parameters, buffers, communicator, probe);
}

}  // namespace lockstep
