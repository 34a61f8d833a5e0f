#include "reducer/base/reducer_base.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "reducer/base/parameter_sync.h"
#include "reducer/comm/collective.h"
#include "reducer/compat.h"
#include "scenarios/base/error.h"

namespace lockstep {
namespace {

const int64_t* begin_of(const at::Tensor& answers) { return answers.data_ptr<int64_t>(); }
const int64_t* end_of(const at::Tensor& answers) { return begin_of(answers) + answers.numel(); }

using torch::autograd::Node;
using torch::autograd::variable_list;

std::unordered_set<Node*> reach(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    visit(torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

}  // namespace

JoinPoll::JoinPoll(Communicator& communicator, std::chrono::milliseconds timeout)
    : communicator_(communicator), timeout_(timeout) {}

void JoinPoll::start(Answer own) {
  own_ = at::full({1}, static_cast<int64_t>(own), at::kLong);
  answers_ = at::empty({communicator_.world_size()}, at::kLong);
  work_ = communicator_.all_gather(answers_, own_, deadline_after(timeout_));
}

int64_t JoinPoll::active(const at::Tensor& answers) {
  return std::count_if(begin_of(answers), end_of(answers), [](int64_t answer) {
    return answer >= static_cast<int64_t>(Answer::unsynchronized);
  });
}

int64_t JoinPoll::root() const {
  const int64_t active = largest_with(Answer::unsynchronized);
  return active >= 0 ? active : std::max<int64_t>(0, largest_with(Answer::leaving));
}

bool JoinPoll::synchronizes() const { return largest_with(Answer::synchronized) >= 0; }

int64_t JoinPoll::largest_with(Answer least) const {
  int64_t largest = -1;
  for (const int64_t* at = begin_of(answers_); at != end_of(answers_); ++at)
    if (*at >= static_cast<int64_t>(least)) largest = at - begin_of(answers_);
  return largest;
}

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             std::function<void(size_t)> ready) {
  for (size_t place = 0; place < parameters.size(); ++place) {
    auto accumulator =
        compat::share_node(torch::autograd::impl::grad_accumulator(parameters[place]));
    const uintptr_t key =
        accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [ready, place](const variable_list& outputs, const variable_list&) {
              ready(place);
              return outputs;
            }));
    hooks_.push_back({std::move(accumulator), key});
  }
}

GradientHooks::~GradientHooks() {
  for (const Hook& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

std::vector<size_t> GradientHooks::unreached_from(const std::vector<at::Tensor>& outputs) const {
  const auto seen = reach(outputs);
  std::vector<size_t> places;
  for (size_t place = 0; place < hooks_.size(); ++place) {
    if (!seen.contains(hooks_[place].accumulator.get())) places.push_back(place);
  }
  return places;
}

TrainedParameters trained(const NamedTensors& parameters) {
  TrainedParameters result;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    const bool known = std::any_of(result.tensors.begin(), result.tensors.end(),
                                   [&](const at::Tensor& other) { return other.is_same(tensor); });
    if (known || !tensor.requires_grad()) continue;
    result.tensors.push_back(tensor);
    result.names.push_back(parameters[i].name);
    result.registration.push_back(static_cast<int64_t>(i));
    result.sparse.push_back(parameters[i].sparse_gradient);
  }
  return result;
}

std::vector<BucketItem> bucket_items(const TrainedParameters& parameters) {
  std::map<MemoryKey, int32_t> keys;
  std::vector<BucketItem> items;
  for (size_t p = 0; p < parameters.tensors.size(); ++p) {
    const at::Tensor& parameter = parameters.tensors[p];
    const auto next = static_cast<int32_t>(keys.size());
    const auto [key, is_new] = keys.try_emplace(memory_key(parameter), next);
    items.push_back({static_cast<int64_t>(parameter.nbytes()), key->second, parameters.sparse[p]});
  }
  return items;
}

ReducerBase::ReducerBase(const ReducerOptions& options, const NamedTensors& parameters,
                         const NamedTensors& buffers, Communicator& communicator, Probe& probe)
    : options_(options),
      trained_(trained(parameters)),
      communicator_(communicator),
      probe_(probe),
      world_size_(communicator.world_size()),
      buffers_(tensors_of(buffers)),
      state_(tensors_of(parameters)),
      roll_(communicator, options.collective_timeout) {
  state_.insert(state_.end(), buffers_.begin(), buffers_.end());
  const Deadline deadline = deadline_after(options.construction_timeout);
  check_manifest(parameters, buffers, communicator, deadline);
  if (options.synchronize_at_construction) broadcast_coalesced(state_, communicator, deadline);
}

void ReducerBase::share_buffers(bool synchronizes) {
  const bool due = std::exchange(last_synchronized_, synchronizes);
  if (!due || !options_.broadcast_buffers || buffers_.empty()) return;
  if (options_.buffer_hook == "average_before_forward") return average_buffers();
  buffers_due_ = options_.buffer_hook == "average_after_forward";
  if (buffers_due_) return;
  int64_t root = 0;
  if (options_.join != "none") {
    roll_.wait();
    root = roll_.root();
  }
  broadcast_coalesced(buffers_, communicator_, collective_deadline(), root);
}

void ReducerBase::after_forward() {
  if (std::exchange(buffers_due_, false)) average_buffers();
}

// Of a forward that has been, autograd may have saved the tensors; it must not see their change.
void ReducerBase::average_buffers() {
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& buffer : buffers_) {
    if (!buffer.is_floating_point()) continue;
    at::Tensor values = buffer.variable_data();
    const at::Tensor summed = fills_memory(values) ? values : values.contiguous();
    summed.div_(world_size_);
    all_reduce(summed)->wait();
    if (!summed.is_same(values)) values.copy_(summed);
  }
}

void ReducerBase::announce_batch(bool synchronizes) {
  if (options_.join == "none") return;
  roll_.start(synchronizes ? JoinPoll::Answer::synchronized : JoinPoll::Answer::unsynchronized);
}

bool ReducerBase::shadow() {
  LOCKSTEP_CHECK(options_.join != "none", "shadow() without join");
  const c10::NoGradGuard no_grad;
  roll_.start(std::exchange(ran_out_, true) ? JoinPoll::Answer::left : JoinPoll::Answer::leaving);
  roll_.wait();
  if (roll_.active() == 0) {
    broadcast_coalesced(state_, communicator_, collective_deadline(), roll_.root());
    ran_out_ = false;
    return false;
  }
  renew_layout();
  share_buffers(roll_.synchronizes());
  if (roll_.synchronizes()) shadow_backward();
  return true;
}

void ReducerBase::shadow_backward() { LOCKSTEP_CHECK(false, "this reducer does not join"); }

int64_t ReducerBase::divisor() {
  if (options_.join != "active_ranks") return world_size_;
  roll_.wait();
  return roll_.active();
}

CommWorkPtr ReducerBase::all_reduce(const at::Tensor& tensor) {
  return started([&] { return communicator_.all_reduce(tensor, collective_deadline()); });
}

CommWorkPtr ReducerBase::reduce_scatter(const at::Tensor& output, const at::Tensor& input) {
  return started(
      [&] { return communicator_.reduce_scatter(output, input, collective_deadline()); });
}

CommWorkPtr ReducerBase::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  return started([&] { return communicator_.all_to_all(output, input, collective_deadline()); });
}

CommWorkPtr ReducerBase::all_gather(const at::Tensor& output, const at::Tensor& input) {
  return started([&] { return communicator_.all_gather(output, input, collective_deadline()); });
}

CommWorkPtr ReducerBase::started(const std::function<CommWorkPtr()>& start) {
  CommWorkPtr work;
  try {
    work = start();
  } catch (const CommError&) {
    std::lock_guard lock(first_failure_->mutex);
    if (first_failure_->error) std::rethrow_exception(first_failure_->error);
    throw;
  }
  work->on_done([failure = first_failure_](const std::exception_ptr& error) {
    std::lock_guard lock(failure->mutex);
    if (error && !failure->error) failure->error = error;
  });
  return work;
}

CommWorkPtr ReducerBase::ReducerGroup::all_reduce(const at::Tensor& tensor) {
  return reducer_.all_reduce(tensor);
}

CommWorkPtr ReducerBase::ReducerGroup::all_gather(const at::Tensor& output,
                                                  const at::Tensor& input) {
  return reducer_.communicator_.all_gather(output, input, reducer_.collective_deadline());
}

BucketLayout ReducerBase::announce(const BucketLayout& layout) {
  BucketLayout registered;
  for (size_t b = 0; b < layout.size(); ++b) {
    auto& bucket = registered.emplace_back();
    for (size_t place = 0; place < layout[b].size(); ++place) {
      bucket.push_back(trained_.registration[static_cast<size_t>(layout[b][place])]);
      probe_.assigned(bucket.back(), static_cast<int64_t>(b), static_cast<int64_t>(place));
    }
  }
  return registered;
}

std::vector<int64_t> ReducerBase::bytes_of(const BucketLayout& layout) const {
  std::vector<int64_t> bytes;
  for (const std::vector<int64_t>& bucket : layout) {
    bytes.push_back(0);
    for (const int64_t place : bucket)
      bytes.back() += static_cast<int64_t>(trained_.tensors[static_cast<size_t>(place)].nbytes());
  }
  return bytes;
}

ReducerData ReducerBase::data_of_parameters() const {
  ReducerData data;
  data.parameters = static_cast<int64_t>(trained_.tensors.size());
  for (const at::Tensor& parameter : trained_.tensors)
    data.parameter_bytes += static_cast<int64_t>(parameter.nbytes());
  return data;
}

void ReducerBase::need_gradients(const std::function<bool(size_t place)>& has) const {
  std::string missing;
  for (size_t place = 0; place < trained_.tensors.size(); ++place)
    if (!has(place)) missing += " " + trained_.names[place];
  if (!missing.empty())
    throw std::runtime_error("no gradient in this step for" + missing +
                             " (unused parameters need find_unused_parameters)");
}

}  // namespace lockstep
