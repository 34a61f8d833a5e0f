#include "golden/golden_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "golden/own_states.h"
#include "golden/replay.h"
#include "golden/sample_cache.h"
#include "scenarios/base/check.h"
#include "scenarios/local_steps.h"
#include "scenarios/workloads/forward.h"
#include "scenarios/workloads/loss_scaling.h"
#include "scenarios/workloads/rank_devices.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
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
  const Scenario scenario = as_golden(given, kind);
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
  const Gradients gradients = kind == GoldenKind::replay
                                  ? replay(scenario, rule, item, setup)
                                  : whole_batch(scenario, setup, restarts_of(rule, scenario, kind),
                                                loss_writer(kind, item));
  const auto copy = [&](std::byte* slot) { copy_state(training, item.layout, slot); };
  const auto train = [&](int64_t step, std::byte* slot) {
    gradients(step, slot);
    update(scenario, step, &training);
  };
  stream_all(scenario.steps, kind, stream, deadline, copy, train);
}

}  // namespace lockstep
