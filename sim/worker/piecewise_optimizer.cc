#include "sim/worker/piecewise_optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "reducer/base/coalesced.h"
#include "reducer/comm/memory_order.h"
#include "reducer/shard_sync.h"
#include "scenarios/base/check.h"

namespace lockstep {
namespace {

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

}  // namespace

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
    const at::Tensor state =
        laid_out_like(parameters_[static_cast<size_t>(piece.parameter)].tensor, saved);
    own[i].tensor = is_whole(piece, state) ? state : elements_of(piece, state);
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

}  // namespace lockstep
