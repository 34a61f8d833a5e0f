#include "golden/golden_run.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "golden/replay.h"
#include "golden/state.h"
#include "scenarios/base/error.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/data.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/update.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// The replay of a scenario whose ranks part (scenarios/scenario.h): one model and optimizer for
// each rank, in one process. One thread.
class OwnStates {
 public:
  // `scenario` and `setup`, rank 0's, must outlive this object. All ranks start with its weights.
  OwnStates(const Scenario& scenario, const ReplayRule& rule, Setup& setup);

  // The whole of a step, update and averages included.
  void step(int64_t step);
  // The states of all ranks, rank after rank: world_size x layout.bytes.
  void copy(const StateLayout& layout, std::byte* out) const;

 private:
  Training& training(size_t rank) { return rank == 0 ? first_ : others_[rank - 1]; }
  void shared_gradients(int64_t step);
  void local_gradients(int64_t step);
  void average_parameters();

  const Scenario& scenario_;
  const ReplayRule rule_;
  const size_t world_size_;
  Training& first_;
  std::vector<Training> others_;
  SampleCache samples_;
  Replay replay_;  // of steps whose gradients are averaged: all ranks have the same weights then
};

namespace {

void copy_tensor_values(const NamedTensors& from, const NamedTensors& to) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < from.size(); ++i) at::Tensor(to[i].tensor).copy_(from[i].tensor);
}

std::vector<Training> twins_of(const Scenario& scenario, const Training& first) {
  std::vector<Training> twins;
  for (int64_t rank = 1; rank < scenario.world_size; ++rank) {
    const RandomSection random(scenario.seed);
    twins.push_back(build_training(scenario, scenario.dtype));
    copy_tensor_values(first.parameters, twins.back().parameters);
    copy_tensor_values(first.buffers, twins.back().buffers);
    note_buffers(&twins.back());
  }
  return twins;
}

std::set<at::ScalarType> trained_dtypes(const Training& training) {
  std::set<at::ScalarType> dtypes;
  for (const NamedTensor& parameter : training.parameters)
    if (parameter.tensor.requires_grad()) dtypes.insert(parameter.tensor.scalar_type());
  return dtypes;
}

// Those of a dtype that are trained.
std::vector<at::Tensor> parameters_of(const Training& training, at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  for (const NamedTensor& parameter : training.parameters)
    if (parameter.tensor.requires_grad() && parameter.tensor.scalar_type() == dtype)
      all.push_back(parameter.tensor);
  return all;
}

at::Tensor flat_parameters(const Training& training, at::ScalarType dtype) {
  std::vector<at::Tensor> flattened;
  for (const at::Tensor& parameter : parameters_of(training, dtype))
    flattened.push_back(parameter.detach().reshape({-1}));
  return at::cat(flattened);
}

void put_parameters(const at::Tensor& flat, const Training& training) {
  int64_t offset = 0;
  for (at::Tensor& parameter : parameters_of(training, flat.scalar_type())) {
    parameter.copy_(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
}

}  // namespace

OwnStates::OwnStates(const Scenario& scenario, const ReplayRule& rule, Setup& setup)
    : scenario_(scenario),
      rule_(rule),
      world_size_(static_cast<size_t>(scenario.world_size)),
      first_(setup.training),
      others_(twins_of(scenario, setup.training)),
      samples_(scenario, setup.data),
      replay_(rule, scenario, setup.training) {}

void OwnStates::step(int64_t step) {
  averages_gradients(scenario_, step) ? shared_gradients(step) : local_gradients(step);
  for (size_t rank = 0; rank < world_size_; ++rank) update(scenario_, step, &training(rank));
  if (averages_parameters(scenario_, step)) average_parameters();
}

void OwnStates::shared_gradients(int64_t step) {
  replay_.average(step, samples_.shards(step));
  const c10::NoGradGuard no_grad;
  for (Training& other : others_) {
    for (size_t i = 0; i < other.parameters.size(); ++i) {
      const at::Tensor& gradient = first_.parameters[i].tensor.grad();
      other.parameters[i].tensor.mutable_grad() =
          gradient.defined() ? gradient.clone() : at::Tensor();
    }
    other.noted_buffers = first_.noted_buffers;
  }
}

// Buffers are rank 0's before each forward, as in every step.
void OwnStates::local_gradients(int64_t step) {
  const std::vector<Batch>& shards = samples_.shards(step);
  int64_t batch_samples = 0;
  for (const Batch& shard : shards) batch_samples += shard.input.size(0);
  for (Training& other : others_) copy_tensor_values(first_.buffers, other.buffers);
  for (size_t rank = 0; rank < world_size_; ++rank) {
    Training& own = training(rank);
    note_buffers(&own);
    clear_gradients(own.parameters, scenario_.zero_grad);
    const double share = loss_share(scenario_, shards[rank].input.size(0), batch_samples) *
                         loss_factor(scenario_, own, step, static_cast<int64_t>(rank));
    for (const Batch& part : micro_batches(shards[rank], scenario_.accumulate_steps))
      loss_of(scenario_.loss, forward_of(own, step, part), part.target, scenario_.world_size, share)
          .backward();
  }
}

void OwnStates::average_parameters() {
  const c10::NoGradGuard no_grad;
  for (const at::ScalarType dtype : trained_dtypes(first_)) {
    std::vector<at::Tensor> flat;
    for (size_t rank = 0; rank < world_size_; ++rank)
      flat.push_back(flat_parameters(training(rank), dtype).div_(scenario_.world_size));
    at::Tensor sum = at::empty_like(flat.front());
    add_in_order(rule_.algorithm, flat, &sum);
    for (size_t rank = 0; rank < world_size_; ++rank) put_parameters(sum, training(rank));
  }
}

void OwnStates::copy(const StateLayout& layout, std::byte* out) const {
  copy_state(first_, layout, out);
  for (size_t other = 0; other < others_.size(); ++other)
    copy_state(others_[other], layout, out + static_cast<int64_t>(other + 1) * layout.bytes);
}

namespace {

std::string dtype_of(const Scenario& scenario, GoldenKind kind) {
  return kind == GoldenKind::float64 ? "float64" : scenario.dtype;
}

// Activations are kept, whatever the ranks do: computed twice they must give the same bits. A whole
// batch in double needs no sparse gradients: its rows are added by other code than theirs.
Scenario as_golden(Scenario scenario, GoldenKind kind) {
  Options& model = scenario.model.options;
  if (model.has("checkpointing")) model.set("checkpointing", std::string("none"));
  if (kind == GoldenKind::float64 && model.has("sparse")) model.set("sparse", false);
  return scenario;
}

bool holds_all_ranks(const Scenario& scenario, GoldenKind kind) {
  return kind == GoldenKind::replay && has_own_states(scenario);
}

GoldenItem item_of(const Scenario& scenario, GoldenKind kind, const Training& training,
                   bool shards) {
  GoldenItem item;
  item.layout = state_layout(training, scenario.optimizer.kind);
  if (holds_all_ranks(scenario, kind)) {
    LOCKSTEP_CHECK(!shards, "states of all ranks and local gradients");
    item.bytes = scenario.world_size * item.layout.bytes;
    return item;
  }
  if (shards) item.shard_bytes = gradients_end(item.layout);
  item.bytes = item.layout.bytes + scenario.world_size * item.shard_bytes;
  if (kind == GoldenKind::invariant) item.bytes += gradients_end(item.layout);
  if (kind == GoldenKind::one_device) item.bytes += static_cast<int64_t>(sizeof(double));
  return item;
}

// Leaves the gradients of a step in the parameters' grad(); `item` is the slot that the step's
// state will be copied to.
using Gradients = std::function<void(int64_t step, std::byte* item)>;

// Of the ranks that kind is compared with.
const std::vector<int64_t>& restarts_of(const ReplayRule& rule, const Scenario& scenario,
                                        GoldenKind kind) {
  const bool of_double = kind == GoldenKind::float64 && scenario.dtype != "float64";
  return of_double ? rule.double_restart_after_steps : rule.restart_after_steps;
}

// Gradients of the whole batch on one device. Those of before a restart are gone, also where they
// would only have been set to zero. `note_loss` or nothing: is given its loss.
Gradients whole_batch(const Scenario& scenario, Setup& setup, const std::vector<int64_t>& restarts,
                      std::function<void(double, std::byte*)> note_loss) {
  return [&scenario, &setup, restarts, note_loss = std::move(note_loss),
          batches = SampleCache(scenario, setup.data)](int64_t step, std::byte* item) mutable {
    const Training& training = setup.training;
    const Batch& batch = batches.batch(step);
    const bool fresh = std::find(restarts.begin(), restarts.end(), step - 1) != restarts.end();
    clear_gradients(training.parameters, fresh ? "none" : scenario.zero_grad);
    note_buffers(&setup.training);
    const double factor = loss_factor(scenario, training, step, -1);
    const at::Tensor loss =
        loss_of(scenario.loss, forward_of(training, step, batch), batch.target, 1, factor);
    loss.backward();
    if (note_loss)
      note_loss(loss.item<double>() / factor / scenario.loss.options.number("scale"), item);
  };
}

std::function<void(double, std::byte*)> loss_writer(GoldenKind kind, const GoldenItem& item) {
  if (kind != GoldenKind::one_device) return {};
  return [&item](double loss, std::byte* out) {
    std::memcpy(out + item.layout.bytes, &loss, sizeof loss);
  };
}

Gradients replay(const Scenario& scenario, const ReplayRule& rule, const GoldenItem& item,
                 Setup& setup) {
  auto averaging = std::make_shared<Replay>(rule, scenario, setup.training);
  return [&item, &setup, averaging, samples = SampleCache(scenario, setup.data)](
             int64_t step, std::byte* out) mutable {
    std::function<void(int64_t)> visit;
    if (item.shard_bytes > 0)
      visit = [&](int64_t rank) {
        copy_gradients(setup.training, item.layout,
                       out + item.layout.bytes + rank * item.shard_bytes);
      };
    averaging->average(step, samples.shards(step), visit);
  };
}

std::vector<at::Tensor> gradients_of(const Training& training) {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : training.parameters)
    gradients.push_back(parameter.tensor.grad().defined() ? parameter.tensor.grad().clone()
                                                          : at::Tensor());
  return gradients;
}

void put_gradients(const std::vector<at::Tensor>& gradients, const Training& training) {
  for (size_t i = 0; i < gradients.size(); ++i)
    training.parameters[i].tensor.mutable_grad() = gradients[i];
}

// Shards 1 and 2, whose sums are not added to each other first: with those of one pair exchanged no
// bit would change. All as it was afterwards, but for grad().
std::vector<std::byte> with_exchange(const Scenario& scenario, const ReplayRule& rule, int64_t step,
                                     std::vector<Batch> shards, const StateLayout& layout,
                                     Training& training) {
  std::swap(shards.at(1), shards.at(2));
  std::vector<at::Tensor> found;
  for (const NamedTensor& buffer : training.buffers) found.push_back(buffer.tensor.clone());
  Replay(rule, scenario, training).average(step, shards);
  std::vector<std::byte> averages(static_cast<size_t>(gradients_end(layout)));
  copy_gradients(training, layout, averages.data());
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < found.size(); ++i) at::Tensor(training.buffers[i].tensor).copy_(found[i]);
  return averages;
}

Gradients shard_tree(const Scenario& scenario, const ReplayRule& rule, const GoldenItem& item,
                     Setup& setup) {
  auto averaging = std::make_shared<Replay>(rule, scenario, setup.training);
  return [&, rule, averaging, samples = SampleCache(scenario, setup.data)](int64_t step,
                                                                           std::byte* out) mutable {
    const std::vector<Batch>& shards = samples.shards(step);
    std::vector<std::byte> exchanged;
    if (step == rule.exchange_in_step) {
      const std::vector<at::Tensor> found = gradients_of(setup.training);
      exchanged = with_exchange(scenario, rule, step, shards, item.layout, setup.training);
      put_gradients(found, setup.training);
    }
    averaging->average(step, shards);
    if (exchanged.empty()) return;
    std::vector<std::byte> right(exchanged.size());
    copy_gradients(setup.training, item.layout, right.data());
    for (size_t i = 0; i < right.size(); ++i) out[item.layout.bytes + i] = exchanged[i] ^ right[i];
  };
}

Gradients gradients_of_kind(const Scenario& scenario, GoldenKind kind, const ReplayRule& rule,
                            const GoldenItem& item, Setup& setup) {
  if (kind == GoldenKind::replay) return replay(scenario, rule, item, setup);
  if (kind == GoldenKind::invariant) return shard_tree(scenario, rule, item, setup);
  return whole_batch(scenario, setup, restarts_of(rule, scenario, kind), loss_writer(kind, item));
}

std::byte* next_slot(GoldenKind kind, StateStream& stream, Deadline deadline) {
  std::byte* slot = stream.begin_write(deadline);
  if (slot == nullptr)
    throw std::runtime_error(std::string("golden run ") + to_word(kind) +
                             ": a reader of its stream stays behind");
  return slot;
}

// Item 0, then one after each step; `train` may write behind the state that `copy` writes.
void stream_all(int64_t steps, GoldenKind kind, StateStream& stream, Deadline deadline,
                const std::function<void(std::byte*)>& copy,
                const std::function<void(int64_t, std::byte*)>& train) {
  copy(next_slot(kind, stream, deadline));
  stream.end_write();
  for (int64_t step = 1; step <= steps && !stream.abandoned(); ++step) {
    std::byte* slot = next_slot(kind, stream, deadline);
    train(step, slot);
    copy(slot);
    stream.end_write();
  }
}

// However the golden run ends, nobody waits for items that will not come.
struct Finish {
  StateStream& stream;
  ~Finish() { stream.finish(); }
};

}  // namespace

const char* to_word(GoldenKind kind) {
  switch (kind) {
    case GoldenKind::replay:
      return "replay";
    case GoldenKind::float64:
      return "float64";
    case GoldenKind::invariant:
      return "invariant";
    case GoldenKind::exact:
      return "exact";
    case GoldenKind::one_device:
      return "one_device";
  }
  LOCKSTEP_CHECK(false, "no such golden run");
}

GoldenItem golden_item(const Scenario& scenario, GoldenKind kind, bool shards) {
  const RandomSection random(scenario.seed);  // no weight of this training is looked at
  return item_of(scenario, kind, build_training(scenario, dtype_of(scenario, kind)), shards);
}

void run_golden(const Scenario& given, GoldenKind kind, const ReplayRule& rule, bool shards,
                StateStream& stream, Deadline deadline) {
  const Finish finish{stream};
  const Scenario scenario = with_rank_per_shard(as_golden(given, kind));
  Setup setup = set_up(scenario, dtype_of(scenario, kind), 0, golden_devices(scenario));
  Training& training = setup.training;
  const GoldenItem item = item_of(scenario, kind, training, shards);
  LOCKSTEP_CHECK(stream.shape().slot_bytes >= item.bytes, "slots too small for the golden run");
  if (holds_all_ranks(scenario, kind)) {
    OwnStates states(scenario, rule, setup);
    const auto copy = [&](std::byte* slot) { states.copy(item.layout, slot); };
    const auto train = [&](int64_t step, std::byte*) { states.step(step); };
    return stream_all(scenario.steps, kind, stream, deadline, copy, train);
  }
  const Gradients gradients = gradients_of_kind(scenario, kind, rule, item, setup);
  const auto copy = [&](std::byte* slot) { copy_state(training, item.layout, slot); };
  const auto train = [&](int64_t step, std::byte* slot) {
    gradients(step, slot);
    update(scenario, step, &training);
  };
  stream_all(scenario.steps, kind, stream, deadline, copy, train);
}

namespace {

// The state after the last step: the slot that a stream of one more slot than needed ends with.
std::vector<std::byte> last_state(const Scenario& scenario, int64_t bytes) {
  const auto stream =
      StateStream::in_memory({.slot_bytes = bytes, .slots = scenario.steps + 1, .consumers = 1});
  run_golden(scenario, GoldenKind::one_device, {}, false, *stream, kNoDeadline);
  for (int64_t item = 0; item < scenario.steps; ++item) {
    stream->begin_read(0, item, kNoDeadline);
    stream->end_read(0);
  }
  const std::byte* state = stream->begin_read(0, scenario.steps, kNoDeadline);
  LOCKSTEP_CHECK(state != nullptr, "a golden run without its last step");
  return {state, state + bytes};
}

}  // namespace

StoredGolden make_stored_golden(const Scenario& scenario) {
  const GoldenItem item = golden_item(scenario, GoldenKind::one_device, false);
  const std::vector<std::byte> state = last_state(scenario, item.bytes);
  const NamedTensors parameters = set_up(scenario, scenario.dtype, 0).training.parameters;
  StoredGolden golden;
  golden.settings = golden_settings(scenario);
  for (const StateEntry& entry : item.layout.entries) {
    if (entry.kind != StateKind::parameter) continue;
    LOCKSTEP_CHECK(entry.dtype == "float32", "stored goldens hold float32");
    StoredTensor tensor;
    tensor.name = entry.name;
    tensor.shape = parameters[static_cast<size_t>(entry.parameter)].tensor.sizes().vec();
    tensor.bits.resize(static_cast<size_t>(entry.numel));
    std::memcpy(tensor.bits.data(), state.data() + entry.offset, static_cast<size_t>(entry.bytes));
    golden.parameters.push_back(std::move(tensor));
  }
  return golden;
}

}  // namespace lockstep
