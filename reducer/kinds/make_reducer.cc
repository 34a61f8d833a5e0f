#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

#include "reducer/base/reducer_base.h"
#include "reducer/c10d/c10d_reducer.h"
#include "reducer/comm/collective.h"
#include "reducer/kinds/bucketed.h"
#include "reducer/kinds/invariant.h"
#include "reducer/kinds/sharded.h"
#include "reducer/reducer.h"
#include "reducer/registry.h"
#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep {

namespace {

Registry<ReducerFactory>& reducers() {
  static Registry<ReducerFactory> known("reducer");
  return known;
}

// After backward: one all_reduce a parameter, in registration order, then the division.
class ManualReducer : public ReducerBase {
 public:
  ManualReducer(const ReducerOptions& options, const NamedTensors& parameters,
                const NamedTensors& buffers, Communicator& communicator, Probe& probe)
      : ReducerBase(options, parameters, buffers, communicator, probe),
        hooks_(trained_.tensors,
               [this](size_t place) { probe_.parameter_ready(trained_.registration[place]); }) {}

  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override;

 private:
  GradientHooks hooks_;
};

void ManualReducer::after_backward() {
  c10::NoGradGuard no_grad;
  need_gradients([&](size_t p) { return trained_.tensors[p].grad().defined(); });
  std::vector<at::Tensor> summed;
  std::vector<CommWorkPtr> works;
  for (const at::Tensor& parameter : trained_.tensors) {
    const at::Tensor& gradient = parameter.grad();
    summed.push_back(gradient.is_sparse() || fills_memory(gradient) ? gradient
                                                                    : gradient.contiguous());
    works.push_back(all_reduce(summed.back()));
  }
  for (size_t p = 0; p < works.size(); ++p) {
    works[p]->wait();
    summed[p].div_(world_size_);
    at::Tensor gradient = trained_.tensors[p].grad();
    if (!gradient.is_same(summed[p])) gradient.copy_(summed[p]);
  }
}

// Gives a reducer's parameters and buckets the numbers that they have among those of all.
class ProbeOfPart : public Probe {
 public:
  ProbeOfPart(Probe& inner, std::vector<int64_t> registration)
      : inner_(inner), registration_(std::move(registration)) {}

  void number_buckets_from(int64_t first) { first_bucket_ = first; }
  int64_t registered(int64_t parameter) const {
    return registration_[static_cast<size_t>(parameter)];
  }

  void parameter_ready(int64_t parameter) noexcept override {
    inner_.parameter_ready(registered(parameter));
  }
  void bucket_ready(int64_t bucket) noexcept override {
    inner_.bucket_ready(first_bucket_ + bucket);
  }
  void arrival(uint32_t sequence, Operation operation, int64_t bucket, int64_t bytes,
               uint8_t dtype) noexcept override {
    inner_.arrival(sequence, operation, bucket, bytes, dtype);
  }
  void end(uint32_t sequence, int64_t bucket) noexcept override { inner_.end(sequence, bucket); }
  // All are assigned by CompositeReducer, once it knows how many buckets each part has.
  void assigned(int64_t, int64_t, int64_t) noexcept override {}

 private:
  Probe& inner_;
  const std::vector<int64_t> registration_;
  int64_t first_bucket_ = 0;
};

struct PartOfModel {
  NamedTensors parameters, buffers;
  std::vector<int64_t> registration;
};

// Tensors that are in `module` (empty: in any) and, or not, in `ignored`.
PartOfModel part_of(const NamedTensors& parameters, const NamedTensors& buffers,
                    const std::string& module, const std::vector<std::string>& ignored,
                    bool takes_ignored) {
  const auto is_in = [&](const NamedTensor& tensor) {
    return (module.empty() || is_named_in({module}, tensor.name)) &&
           is_named_in(ignored, tensor.name) == takes_ignored;
  };
  PartOfModel part;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!is_in(parameters[i])) continue;
    part.parameters.push_back(parameters[i]);
    part.registration.push_back(static_cast<int64_t>(i));
  }
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(part.buffers), is_in);
  return part;
}

// Several reducers over one communicator, as a model with several DDP modules has: of
// options.kind, one for each of options.wrapped_modules, or one for all, without the tensors in
// options.ignored; and, where those are averaged by hand, one of kind manual. All ranks call their
// collectives in the same order as long as their backwards come to the modules in the same order:
// nothing else sees to it, here as in DDP.
//
// Buckets are numbered through all reducers, the last module's first.
class CompositeReducer : public Reducer {
 public:
  CompositeReducer(const ReducerOptions& options, const NamedTensors& parameters,
                   const NamedTensors& buffers, Communicator& communicator, Probe& probe)
      : probe_(probe), searches_unused_(options.find_unused_parameters || options.static_graph) {
    ReducerOptions own = options;
    own.ignored = own.wrapped_modules = {};
    std::vector<std::string> modules = options.wrapped_modules;
    if (modules.empty()) modules.emplace_back();
    for (const std::string& module : modules)
      add(own, part_of(parameters, buffers, module, options.ignored, false), communicator);
    if (options.average_ignored) {
      own.kind = "manual";
      own.synchronize_at_construction = false;
      add(own, part_of(parameters, {}, "", options.ignored, true), communicator);
    }
    number_buckets();
  }

  void before_forward(bool synchronizes) override {
    for (const Part& part : parts_) part.reducer->before_forward(synchronizes);
    if (assigned_ != layout()) number_buckets();
  }
  void after_forward() override {
    for (const Part& part : parts_) part.reducer->after_forward();
  }
  void before_backward(const std::vector<at::Tensor>& outputs) override {
    for (const Part& part : parts_) part.reducer->before_backward(outputs);
  }
  void after_backward() override {
    for (const Part& part : parts_) part.reducer->after_backward();
  }
  bool shadow() override { LOCKSTEP_CHECK(false, "several reducers do not join"); }

  BucketLayout layout() const override {
    BucketLayout all;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part)
      for (std::vector<int64_t> bucket : part->reducer->layout()) {
        for (int64_t& parameter : bucket) parameter = part->probe->registered(parameter);
        all.push_back(std::move(bucket));
      }
    return all;
  }

  ReducerData data() override {
    ReducerData all;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) all += part->reducer->data();
    return all;
  }

 private:
  struct Part {
    std::unique_ptr<ProbeOfPart> probe;
    std::unique_ptr<Reducer> reducer;
  };

  void add(const ReducerOptions& options, const PartOfModel& tensors, Communicator& communicator) {
    auto probe = std::make_unique<ProbeOfPart>(probe_, tensors.registration);
    auto reducer = make_reducer(options, tensors.parameters, tensors.buffers, communicator, *probe);
    parts_.push_back({std::move(probe), std::move(reducer)});
  }

  // The last module's first: backward comes to it first. A map of used parameters goes after each
  // reducer's last bucket, and is counted like one.
  void number_buckets() {
    assigned_ = layout();
    int64_t bucket = 0;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      part->probe->number_buckets_from(bucket);
      const BucketLayout own = part->reducer->layout();
      for (const std::vector<int64_t>& parameters : own) {
        for (size_t place = 0; place < parameters.size(); ++place)
          probe_.assigned(part->probe->registered(parameters[place]), bucket,
                          static_cast<int64_t>(place));
        ++bucket;
      }
      if (searches_unused_ && !own.empty()) ++bucket;
    }
  }

  Probe& probe_;
  const bool searches_unused_;
  std::vector<Part> parts_;  // in the order of the modules' forwards
  BucketLayout assigned_;
};

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
  using ReducerBase::ReducerBase;
  void before_forward(bool) override {}
  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override {}
};

}  // namespace

bool register_reducer(const std::string& name, ReducerFactory factory) {
  return reducers().add(name, std::move(factory));
}

void find_reducer(const std::string& name) { reducers().get(name); }

std::unique_ptr<Reducer> make_registered_reducer(const ReducerParts& parts) {
  return reducers().get(parts.options.name)(parts);
}

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
  const auto make = [&]<class Kind>(std::type_identity<Kind>) {
    return std::make_unique<Kind>(options, parameters, buffers, communicator, probe);
  };
  if (!options.ignored.empty() || !options.wrapped_modules.empty())
    return make(std::type_identity<CompositeReducer>());
  if (kind == "c10d") return make_c10d_reducer(options, parameters, buffers, communicator, probe);
  if (kind == "manual") return make(std::type_identity<ManualReducer>());
  if (kind == "data_parallel") return std::make_unique<NothingToReduce>();
  if (kind == "none") return make(std::type_identity<NoReducer>());
  if (kind == "sharded") return make(std::type_identity<ShardedReducer>());
  if (kind == "invariant") return make(std::type_identity<InvariantReducer>());
  if (kind == "registered")
    return make_registered_reducer({parameters, buffers, communicator, probe, options});
  LOCKSTEP_CHECK(kind == "bucketed" || kind == "flat" || kind == "per_parameter",
                 "unknown kind of reducer " + kind);
  return make(std::type_identity<BucketedReducer>());
}

}  // namespace lockstep
