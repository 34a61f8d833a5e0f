#include "reducer/c10d/c10d_reducer.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "reducer/base/reducer_base.h"
#include "reducer/c10d/c10d_adapters.h"

namespace lockstep {
namespace {

// A hook of ours as one of LibTorch's. Its future is complete at once: when all buckets have been
// given, the reducer asks for their results, and that is where we wait. Buckets are numbered here:
// in the first step of a static graph LibTorch calls each of them 0.
class HookAdapter : public c10d::CommHookInterface {
 public:
  using BucketReady = std::function<void(int64_t)>;
  HookAdapter(std::unique_ptr<CommHook> hook, HookGroup& group, BucketReady ready)
      : hook_(std::move(hook)), group_(group), ready_(std::move(ready)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const c10::NoGradGuard no_grad;
    if (finishes_.empty()) {
      ++step_;
      next_ = 0;
    }
    const int64_t index = next_++;
    ready_(index);
    const HookBucket given{.step = step_,
                           .index = index,
                           .is_last = bucket.isLast(),
                           .gradients = bucket.getBuffer(),
                           .by_parameter = bucket.getGradients()};
    finishes_[index] = hook_->start(given, group_);
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(c10::IValue(index));
    return future;
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    const c10::NoGradGuard no_grad;
    const CommHook::Finish finish = std::move(finishes_.at(result.toInt()));
    finishes_.erase(result.toInt());
    return finish();
  }

 private:
  const std::unique_ptr<CommHook> hook_;
  HookGroup& group_;
  const BucketReady ready_;
  int64_t step_ = 0;
  int64_t next_ = 0;
  std::map<int64_t, CommHook::Finish> finishes_;  // of buckets whose results are not asked for yet
};

// Absent: 0.
int64_t integer_in(const at::DDPLoggingData& logged, const char* key) {
  const auto found = logged.ints_map.find(key);
  return found == logged.ints_map.end() ? 0 : found->second;
}

// "4, 12"; absent: none.
std::vector<int64_t> sizes_in(const at::DDPLoggingData& logged, const char* key) {
  std::vector<int64_t> sizes;
  const auto found = logged.strs_map.find(key);
  if (found == logged.strs_map.end()) return sizes;
  std::istringstream words(found->second);
  for (std::string word; std::getline(words, word, ',');)
    if (!word.empty()) sizes.push_back(std::stoll(word));
  return sizes;
}

class C10dReducer : public ReducerBase {
 public:
  C10dReducer(const ReducerOptions& options, const NamedTensors& parameters,
              const NamedTensors& buffers, Communicator& communicator, Probe& probe);

  void before_forward(bool synchronizes) override;
  void before_backward(const std::vector<at::Tensor>& outputs) override;
  // The reducer has waited and written back before backward() returned, but for the first step of a
  // static graph, in which it only counts.
  void after_backward() override;
  BucketLayout layout() const override { return registered_layout_; }
  ReducerData data() override;

 private:
  void renew_layout() override;
  void shadow_backward() override;
  void expect_uneven();
  c10::intrusive_ptr<c10d::ProcessGroup> make_group();
  compat::DdpArguments<at::Tensor> arguments() const;
  BucketLayout current_layout() const;
  BucketLayout layout_by_its_rules() const;

  bool search_unused_ = false;
  bool in_backward_ = false;
  bool counts_only_ = false;  // the first step of a static graph
  int64_t next_bucket_ = 0;
  BucketLayout registered_layout_;
  std::vector<int64_t> ready_order_;  // of this rank's first synchronized backward
  std::optional<GradientHooks> hooks_;
  std::shared_ptr<c10d::Reducer> reducer_;
  c10d::CommHookInterface* comm_hook_ = nullptr;  // the reducer's
  std::shared_ptr<c10d::Logger> logger_;
  bool logs_ = false;  // its timers know no fake devices
};

C10dReducer::C10dReducer(const ReducerOptions& options, const NamedTensors& parameters,
                         const NamedTensors& buffers, Communicator& communicator, Probe& probe)
    : ReducerBase(options, parameters, buffers, communicator, probe),
      search_unused_(options.find_unused_parameters && !options.static_graph) {
  const auto group = make_group();
  c10d::verify_params_across_processes(group, trained_.tensors, {});
  // Before the reducer's own hooks, so that a parameter is reported before its bucket.
  hooks_.emplace(trained_.tensors, [this](size_t place) {
    if (!in_backward_) return;
    probe_.parameter_ready(trained_.registration[place]);
    if (ready_order_.size() < trained_.tensors.size())
      ready_order_.push_back(static_cast<int64_t>(place));
  });
  reducer_ = compat::make_ddp_reducer<c10d::Reducer>(arguments(), group);
  // Without a logger find_unused_parameters crashes when the set of unused ones changes.
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  logs_ = trained_.tensors.front().is_cpu();
  if (logs_)
    logger_->set_construction_data_and_log("model", {}, -1, options.broadcast_buffers, false,
                                           options.static_graph);
  counts_only_ = options.static_graph;
  if (options.static_graph) reducer_->set_static_graph();
  if (options.join != "none") logger_->set_uneven_input_join();
  if (auto hook = make_comm_hook(options.comm_hook)) {
    auto adapter = std::make_unique<HookAdapter>(
        std::move(hook), hook_group(), [this](int64_t bucket) { probe_.bucket_ready(bucket); });
    comm_hook_ = adapter.get();
    reducer_->register_comm_hook(std::move(adapter));
  }
  registered_layout_ = announce(current_layout());
}

c10::intrusive_ptr<c10d::ProcessGroup> C10dReducer::make_group() {
  const auto adapter = c10::make_intrusive<ProcessGroupAdapter>(
      communicator_, options_.collective_timeout, [this](const at::Tensor& tensor) {
        const bool is_bucket =
            in_backward_ && next_bucket_ < static_cast<int64_t>(registered_layout_.size());
        if (is_bucket) probe_.bucket_ready(next_bucket_++);
        return all_reduce(tensor);
      });
  c10::intrusive_ptr<ProcessGroupAdapter::Base> base = adapter;
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  return compat::as_process_group<c10d::ProcessGroup>(base, store, compat::BackendWord::custom);
}

compat::DdpArguments<at::Tensor> C10dReducer::arguments() const {
  const auto unlimited = static_cast<size_t>(std::numeric_limits<int64_t>::max());
  const auto first = static_cast<size_t>(options_.first_bucket_bytes);
  const auto cap = static_cast<size_t>(options_.bucket_cap_bytes);
  const std::vector<size_t> caps =
      search_unused_ ? std::vector<size_t>{first, cap} : std::vector<size_t>{unlimited};
  compat::DdpArguments<at::Tensor> a;
  a.parameters = trained_.tensors;
  a.sparse = trained_.sparse;
  std::tie(a.buckets, a.limits) =
      c10d::compute_bucket_assignment_by_size(trained_.tensors, caps, a.sparse);
  std::reverse(a.buckets.begin(), a.buckets.end());
  std::reverse(a.limits.begin(), a.limits.end());
  a.bucket_cap_bytes = options_.bucket_cap_bytes;
  a.first_bucket_bytes = options_.first_bucket_bytes;
  a.find_unused_parameters = search_unused_;
  a.gradient_as_bucket_view = options_.gradient_as_bucket_view;
  for (size_t p = 0; p < trained_.names.size(); ++p) a.names[p] = trained_.names[p];
  return a;
}

// What the reducer does by itself, from what this rank knows of it: without it where the versions
// from 2.15 on refuse to tell, since a bucket of a sparse gradient has no memory before it.
BucketLayout C10dReducer::layout_by_its_rules() const {
  std::vector<std::vector<size_t>> buckets = arguments().buckets;
  const bool rebuilt = ready_order_.size() == trained_.tensors.size() && !search_unused_;
  if (rebuilt) {
    std::vector<at::Tensor> in_order;
    for (const int64_t place : ready_order_)
      in_order.push_back(trained_.tensors[static_cast<size_t>(place)]);
    const std::vector<size_t> limits = {static_cast<size_t>(options_.first_bucket_bytes),
                                        static_cast<size_t>(options_.bucket_cap_bytes)};
    buckets = std::get<0>(
        c10d::compute_bucket_assignment_by_size(in_order, limits, trained_.sparse, ready_order_));
  }
  BucketLayout layout;
  for (const std::vector<size_t>& bucket : buckets)
    layout.emplace_back(bucket.begin(), bucket.end());
  return layout;
}

BucketLayout C10dReducer::current_layout() const {
  BucketLayout layout;
  std::vector<c10d::GradBucket> buckets;
  try {
    buckets = reducer_->get_grad_buckets(false);
  } catch (const c10::Error&) {
    const std::vector<bool>& sparse = trained_.sparse;
    if (std::find(sparse.begin(), sparse.end(), true) == sparse.end()) throw;
    return layout_by_its_rules();
  }
  for (const c10d::GradBucket& bucket : buckets) {
    auto& places = layout.emplace_back();
    for (const at::Tensor& parameter : bucket.getParameters()) {
      const auto found =
          std::find_if(trained_.tensors.begin(), trained_.tensors.end(),
                       [&](const at::Tensor& other) { return other.is_same(parameter); });
      places.push_back(found - trained_.tensors.begin());
    }
  }
  return layout;
}

void C10dReducer::before_forward(bool synchronizes) {
  if (synchronizes) {
    if (logs_) logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  announce_batch(synchronizes);
  if (options_.join != "none") expect_uneven();
  renew_layout();
  share_buffers(synchronizes);
}

void C10dReducer::renew_layout() {
  if (reducer_->rebuild_buckets()) registered_layout_ = announce(current_layout());
}

// The reducer waits for the number of ranks when it divides its first gradient. Nobody waits for a
// forward that is not synchronized: its answers may come when the next ones are under way.
void C10dReducer::expect_uneven() {
  at::Tensor active = at::zeros({1});
  auto work = as_work(static_cast<int>(communicator_.rank()), roll().work(), {active},
                      [active, answers = roll().answers()]() mutable {
                        const c10::NoGradGuard no_grad;
                        active.fill_(JoinPoll::active(answers));
                      });
  reducer_->set_forward_pass_work_handle(work, options_.join == "initial_world_size");
}

// As Python's DDP: the map of used parameters is the one that the reducer holds.
void C10dReducer::shadow_backward() {
  next_bucket_ = 0;
  in_backward_ = true;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
  for (c10d::GradBucket& bucket : reducer_->get_grad_buckets(true))
    futures.push_back(reducer_->run_comm_hook(bucket));
  for (const auto& future : futures) {
    future->waitAndThrow();
    if (comm_hook_ != nullptr) comm_hook_->parseHookResult(future->value());
  }
  if (search_unused_) all_reduce(reducer_->get_local_used_map_on_device())->wait();
  reducer_->push_rebuilt_params_for_all_indices();
  in_backward_ = false;
}

void C10dReducer::before_backward(const std::vector<at::Tensor>& outputs) {
  next_bucket_ = 0;
  in_backward_ = true;
  reducer_->prepare_for_backward(search_unused_ ? outputs : std::vector<at::Tensor>());
}

// What the logger knows of the last step it would learn at the beginning of the next.
ReducerData C10dReducer::data() {
  ReducerData data = data_of_parameters();
  if (!logs_) return data;
  const at::DDPLoggingData before = logger_->get_ddp_logging_data();
  reducer_->set_ddp_runtime_logging_sample_rate(1);
  logger_->set_runtime_stats_and_log();
  const at::DDPLoggingData after = logger_->get_ddp_logging_data();
  data.bucket_bytes = sizes_in(after, "bucket_sizes");
  data.rebuilt_bucket_bytes = sizes_in(after, "rebuilt_bucket_sizes");
  data.parameters = integer_in(after, "num_parameter_tensors");
  data.parameter_bytes = integer_in(after, "total_parameter_size_bytes");
  // The logger adds them up over the steps.
  data.unused_parameter_bytes =
      integer_in(after, "unused_parameter_size") - integer_in(before, "unused_parameter_size");
  data.forward_ns = integer_in(before, "avg_forward_compute_time");
  data.backward_ns = integer_in(before, "avg_backward_compute_time");
  data.comm_ns = integer_in(before, "avg_backward_comm_time");
  data.overlap_ns = integer_in(before, "avg_backward_compute_comm_overlap_time");
  return data;
}

void C10dReducer::after_backward() {
  if (std::exchange(counts_only_, false)) {
    const c10::NoGradGuard no_grad;
    reducer_->delay_all_reduce();
  }
  in_backward_ = false;
}

}  // namespace

std::unique_ptr<Reducer> make_c10d_reducer(const ReducerOptions& options,
                                           const NamedTensors& parameters,
                                           const NamedTensors& buffers, Communicator& communicator,
                                           Probe& probe) {
  return std::make_unique<C10dReducer>(options, parameters, buffers, communicator, probe);
}

}  // namespace lockstep
