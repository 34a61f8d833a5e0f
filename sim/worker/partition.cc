#include "sim/worker/partition.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "reducer/base/parameter_sync.h"
#include "reducer/comm/collective.h"
#include "reducer/data_parallel.h"
#include "reducer/kinds/sharded.h"
#include "scenarios/base/error.h"
#include "scenarios/workloads/draws.h"
#include "scenarios/workloads/update.h"

namespace lockstep {
namespace {

class OnReplicas : public Model {
 public:
  OnReplicas(const Scenario& scenario, const std::string& dtype, std::unique_ptr<Model> model)
      : model_(std::move(model)) {
    // Their own weights are never used.
    const RandomSection random(scenario.seed);
    for (int64_t r = 0; r < scenario.world_size; ++r)
      models_.push_back(build_model(scenario.model, dtype));
    std::vector<DataParallel::Replica> replicas;
    for (const std::unique_ptr<Model>& one : models_)
      replicas.push_back(
          {[replica = one.get()](const at::Tensor& input) { return replica->forward(input); },
           one->parameters(), one->buffers()});
    parallel_ = std::make_unique<DataParallel>(model_->parameters(), model_->buffers(),
                                               std::move(replicas));
  }

  at::Tensor forward(const at::Tensor& input) override {
    if (draws_ != nullptr) share_out_draws(input.size(0));
    return parallel_->forward(input);
  }
  bool draw_from(SampleDraws* draws) override {
    bool any = false;
    of_replicas_.clear();
    for (const std::unique_ptr<Model>& one : models_) {
      of_replicas_.push_back(std::make_unique<SampleDraws>(*draws));
      any = one->draw_from(of_replicas_.back().get()) || any;
    }
    draws_ = any ? draws : nullptr;
    return any;
  }
  std::vector<std::string> undeclared_random_layers() const override {
    return model_->undeclared_random_layers();
  }
  NamedTensors parameters() const override { return model_->parameters(); }
  NamedTensors buffers() const override { return model_->buffers(); }

 private:
  // Each replica draws for its rows: the first ones have one more where they do not divide.
  void share_out_draws(int64_t rows) {
    const auto replicas = static_cast<int64_t>(models_.size());
    int64_t begin = 0;
    for (int64_t r = 0; r < replicas; ++r) {
      const int64_t count = rows / replicas + (r < rows % replicas ? 1 : 0);
      of_replicas_[static_cast<size_t>(r)]->begin_part(*draws_, begin, count);
      begin += count;
    }
  }

  std::unique_ptr<Model> model_;                // on the first device
  std::vector<std::unique_ptr<Model>> models_;  // one on each
  std::unique_ptr<DataParallel> parallel_;
  SampleDraws* draws_ = nullptr;  // of the forward; null where no layer draws
  std::vector<std::unique_ptr<SampleDraws>> of_replicas_;
};

bool is_whole(const OptimizerShard& piece, const at::Tensor& parameter) {
  return piece.numel == parameter.numel();
}

NamedTensor of_piece(const OptimizerShard& piece, const NamedTensor& parameter) {
  if (is_whole(piece, parameter.tensor)) return parameter;
  return {fmt::format("{}[{}:{}]", parameter.name, piece.begin, piece.begin + piece.numel),
          elements_of(piece, parameter.tensor)};
}

// State of a parameter, wherever it comes from, in memory as the parameter is.
at::Tensor laid_out_like(const at::Tensor& parameter, const at::Tensor& state) {
  if (state.strides() == parameter.strides()) return state;
  return at::empty_like(parameter.detach(), state.options()).copy_(state);
}

std::vector<int64_t> trained_numels(const NamedTensors& parameters) {
  std::vector<int64_t> numels;
  for (const NamedTensor& one : parameters)
    numels.push_back(one.tensor.requires_grad() ? one.tensor.numel() : 0);
  return numels;
}

// Undefined where a parameter has none.
std::vector<at::Tensor> gradients_of(const NamedTensors& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& one : parameters) tensors.push_back(one.tensor.grad());
  return tensors;
}

bool any_gradient(const NamedTensors& parameters) {
  for (const NamedTensor& one : parameters)
    if (one.tensor.grad().defined()) return true;
  return false;
}

// Pieces are runs of memory.
void need_no_gaps(const NamedTensors& parameters) {
  for (const NamedTensor& one : parameters)
    if (!fills_memory(one.tensor))
      throw std::runtime_error(fmt::format(
          "parameter {} has strides [{}], which leave gaps in memory: an optimizer that "
          "is shared out cannot cut it into pieces",
          one.name, fmt::join(one.tensor.strides(), ", ")));
}

// How pieces are cut, and how updated ones travel.
struct Way {
  std::vector<OptimizerShard> pieces;
  PiecewiseOptimizer::Spread spread;
  std::function<void()> gather_gradients;
};

Way zero(const Scenario& scenario, const NamedTensors& parameters, Communicator& group,
         std::chrono::milliseconds timeout) {
  const std::vector<OptimizerShard> pieces =
      zero_shards(trained_numels(parameters), group.world_size());
  const bool together = scenario.optimizer_sharding.options.text("broadcast") == "per_rank";
  const auto spread = [=, &group, weights = tensors_of(parameters)] {
    broadcast_shards(pieces, weights, together, group, deadline_after(timeout));
  };
  return {pieces, spread, nullptr};
}

Way sharded(const ReducerOptions& options, const NamedTensors& parameters, Communicator& group) {
  const auto buckets = bucket_shards_of(options, parameters, group.world_size());
  const auto timeout = options.collective_timeout;
  Way way;
  for (const std::vector<OptimizerShard>& bucket : buckets)
    way.pieces.insert(way.pieces.end(), bucket.begin(), bucket.end());
  way.spread = [=, &group, weights = tensors_of(parameters)] {
    all_gather_shards(buckets, weights, group, deadline_after(timeout));
  };
  way.gather_gradients = [=, &group] {
    if (any_gradient(parameters))
      all_gather_shards(buckets, gradients_of(parameters), group, deadline_after(timeout));
  };
  return way;
}

}  // namespace

void run_on_replicas(const Scenario& scenario, const std::string& dtype, Training* training) {
  if (scenario.reducer.kind != "data_parallel") return;
  training->model = std::make_unique<OnReplicas>(scenario, dtype, std::move(training->model));
  training->model->draw_from(training->draws.get());
}

PiecewiseOptimizer::PiecewiseOptimizer(const Part& part, NamedTensors parameters,
                                       std::vector<OptimizerShard> pieces, Spread spread,
                                       Communicator& group, std::chrono::milliseconds timeout)
    : parameters_(std::move(parameters)),
      pieces_(std::move(pieces)),
      spread_(std::move(spread)),
      group_(group),
      timeout_(timeout),
      whole_(build_optimizer(part, parameters_)) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].owner != group.rank()) continue;
    own_pieces_.push_back(i);
    own_parameters_.push_back(
        of_piece(pieces_[i], parameters_[static_cast<size_t>(pieces_[i].parameter)]));
  }
  own_ = build_optimizer(part, own_parameters_);
  const NamedTensors state = whole_->state();
  words_ = state.size() / parameters_.size();
  for (size_t w = 0; w < words_; ++w)
    is_counter_.push_back(state[w].tensor.defined() && !state[w].tensor.is_floating_point());
}

void PiecewiseOptimizer::step() {
  for (size_t i = 0; i < own_pieces_.size(); ++i) {
    const OptimizerShard& piece = pieces_[own_pieces_[i]];
    const at::Tensor& parameter = parameters_[static_cast<size_t>(piece.parameter)].tensor;
    if (is_whole(piece, parameter)) continue;
    const at::Tensor& gradient = parameter.grad();
    own_parameters_[i].tensor.mutable_grad() =
        gradient.defined() ? elements_of(piece, gradient) : at::Tensor();
  }
  own_->step();
  spread_();
}

void PiecewiseOptimizer::load(const NamedTensors& state) {
  whole_->load(state);
  NamedTensors own = own_->state();
  for (size_t i = 0; i < own.size(); ++i) {
    const OptimizerShard& piece = pieces_[own_pieces_[i / words_]];
    const size_t word = i % words_;
    const at::Tensor& saved = state[static_cast<size_t>(piece.parameter) * words_ + word].tensor;
    own[i].tensor = saved;
    if (is_counter_[word] || !saved.defined()) continue;
    const at::Tensor laid_out =
        laid_out_like(parameters_[static_cast<size_t>(piece.parameter)].tensor, saved);
    own[i].tensor = is_whole(piece, laid_out) ? laid_out : elements_of(piece, laid_out);
  }
  own_->load(own);
}

// Before the first update of a piece some of its state does not exist.
std::vector<bool> PiecewiseOptimizer::which_are_there() const {
  at::Tensor flags = at::zeros({static_cast<int64_t>(pieces_.size() * words_)}, at::kByte);
  const NamedTensors own = own_->state();
  for (size_t i = 0; i < own.size(); ++i)
    flags.data_ptr<uint8_t>()[own_pieces_[i / words_] * words_ + i % words_] =
        own[i].tensor.defined();
  group_.all_reduce(flags, deadline())->wait();
  const uint8_t* first = flags.data_ptr<uint8_t>();
  return std::vector<bool>(first, first + flags.numel());
}

// Where the state of `owner` belongs in `whole`; on the owner itself its values are there already.
std::vector<at::Tensor> PiecewiseOptimizer::places_in(NamedTensors* whole, int64_t owner,
                                                      const std::vector<bool>& there) const {
  std::vector<at::Tensor> places;
  const NamedTensors own = own_->state();
  size_t own_state = 0;
  for (size_t i = 0; i < there.size(); ++i) {
    const OptimizerShard& piece = pieces_[i / words_];
    if (piece.owner != owner) continue;
    const size_t from = own_state++;
    if (!there[i]) continue;
    const auto parameter = static_cast<size_t>(piece.parameter);
    const bool counts = is_counter_[i % words_];
    at::Tensor& tensor = (*whole)[parameter * words_ + i % words_].tensor;
    if (!tensor.defined())
      tensor = counts ? at::zeros({1}, at::kLong)
                      : at::zeros_like(parameters_[parameter].tensor.detach());
    places.push_back(counts ? tensor : elements_of(piece, tensor));
    if (owner == group_.rank()) places.back().copy_(in_memory_order(own[from].tensor));
  }
  return places;
}

void PiecewiseOptimizer::consolidate() {
  if (words_ == 0) return;
  const c10::NoGradGuard no_grad;
  const std::vector<bool> there = which_are_there();
  NamedTensors whole = whole_->state();
  for (NamedTensor& named : whole) named.tensor = at::Tensor();
  for (int64_t owner = 0; owner < group_.world_size(); ++owner)
    broadcast_coalesced(places_in(&whole, owner, there), group_, deadline(), owner);
  for (size_t i = 0; i < whole.size(); ++i)  // of what belongs to nobody
    if (is_counter_[i % words_] && !whole[i].tensor.defined())
      whole[i].tensor = at::zeros({1}, at::kLong);
  whole_->load(whole);
}

int64_t PiecewiseOptimizer::own_bytes() const { return state_bytes(*own_); }

int64_t state_bytes(const Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const NamedTensor& named : optimizer.state())
    if (named.tensor.defined()) bytes += static_cast<int64_t>(named.tensor.nbytes());
  return bytes;
}

void Sharing::consolidate() {
  if (optimizer != nullptr) optimizer->consolidate();
  if (gather_gradients) gather_gradients();
}

Sharing partition_optimizer(const Scenario& scenario, const ReducerOptions& options,
                            Training* training, Communicator& group) {
  if (!shares_optimizer(scenario)) return {};
  need_no_gaps(training->parameters);
  Way way = options.kind == "sharded"
                ? sharded(options, training->parameters, group)
                : zero(scenario, training->parameters, group, options.collective_timeout);
  auto optimizer = std::make_unique<PiecewiseOptimizer>(scenario.optimizer, training->parameters,
                                                        std::move(way.pieces), way.spread, group,
                                                        options.collective_timeout);
  const Sharing sharing{optimizer.get(), way.gather_gradients};
  training->optimizer = std::move(optimizer);
  if (training->loss_scale)
    training->optimizer =
        with_loss_scale(std::move(training->optimizer), training->loss_scale, training->parameters);
  return sharing;
}

}  // namespace lockstep
