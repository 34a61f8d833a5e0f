#include "sim/worker/communication.h"

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <utility>

#include "reducer/comm/collective.h"
#include "reducer/device/staged.h"
#include "scenarios/base/hash.h"
#include "scenarios/base/part.h"
#include "scenarios/workloads/devices.h"
#include "sim/fault/mutants.h"
#include "sim/fault/network_faults.h"
#include "sim/fault/training_mutants.h"

namespace lockstep {
namespace {

class HostViews : public CollectiveCommunicator {
 public:
  explicit HostViews(std::unique_ptr<Communicator> inner)
      : CollectiveCommunicator(inner->rank(), inner->world_size()), inner_(std::move(inner)) {}
  void close(Deadline deadline) noexcept override { inner_->close(deadline); }

 private:
  CommWorkPtr submit(CollectiveCall call) override {
    call.output = on_host(call.output);
    call.input = on_host(call.input);
    return forward(*inner_, call);
  }

  const std::unique_ptr<Communicator> inner_;
};

CommHookOptions comm_hook_options(const Scenario& scenario, int64_t rank) {
  const Options& given = scenario.comm_hook.options;
  CommHookOptions options;
  options.kind = scenario.comm_hook.kind;
  options.seed = scenario.seed;
  if (given.has("name")) options.name = given.text("name");
  if (given.has("rank")) options.rank = given.integer("rank");
  if (given.has("start_step")) options.start_step = given.integer("start_step");
  if (given.has("error_feedback"))
    options.error_feedback =
        given.flag("error_feedback") && !has_mutant(scenario.mutants, "no_error_feedback", rank);
  return options;
}

// Gloo by itself knows the host's memory alone; ProcessGroupGloo has a staging of its own.
bool is_staged(const Scenario& scenario) {
  return scenario.streams == "late" ||
         (scenario.device == "cuda" && scenario.communicator.kind == "gloo");
}

StagingWaits staging_waits(const std::vector<MutantSpec>& mutants, int64_t rank) {
  StagingWaits waits;
  waits.for_gradients = !has_mutant(mutants, "skip_gradient_wait", rank);
  waits.for_copies = !has_mutant(mutants, "skip_copy_wait", rank);
  waits.for_results = !has_mutant(mutants, "skip_result_wait", rank);
  return waits;
}

}  // namespace

std::unique_ptr<Communicator> with_host_views(std::unique_ptr<Communicator> inner) {
  return std::make_unique<HostViews>(std::move(inner));
}

at::Tensor RankBatch::all_gather(const at::Tensor& row) {
  const at::Tensor rows = at::empty({communicator_.world_size(), row.numel()}, row.options());
  communicator_.all_gather(rows, row.contiguous(), deadline_after(timeout_))->wait();
  return rows;
}

ReducerOptions reducer_options_of(const Scenario& scenario, int64_t rank) {
  const Options& given = scenario.reducer.options;
  ReducerOptions options;
  options.kind = scenario.reducer.kind;
  if (given.has("name")) options.name = given.text("name");
  options.own = own_options(given);
  options.bucket_cap_bytes = bytes_of_mib(given.number("bucket_cap_mb"));
  options.first_bucket_bytes = bytes_of_mib(given.number("first_bucket_mb"));
  options.gradient_as_bucket_view = given.flag("gradient_as_bucket_view");
  options.find_unused_parameters = given.flag("find_unused_parameters");
  options.static_graph = given.flag("static_graph");
  options.broadcast_buffers = given.flag("broadcast_buffers");
  if (has_virtual_shards(scenario)) options.virtual_shards = shards_of(scenario);
  options.micro_batches_per_shard = scenario.accumulate_steps;
  options.write_back = given.text("write_back");
  options.buffer_hook = given.text("buffer_hook");
  options.ignored = scenario.ignored;
  options.average_ignored = given.flag("average_ignored");
  options.wrapped_modules = scenario.wrapped_modules;
  options.synchronize_at_construction = !has_mutant(scenario.mutants, "skip_broadcast", rank);
  options.join = scenario.join_divide_by.value_or("none");
  options.comm_hook = comm_hook_options(scenario, rank);
  options.construction_timeout = std::chrono::milliseconds(scenario.timeouts.construction_ms);
  options.collective_timeout = std::chrono::milliseconds(scenario.timeouts.collective_ms);
  return options;
}

std::string reducer_data_text(const ReducerData& data) {
  if (data.bucket_bytes.empty()) return "";
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  const nlohmann::ordered_json json = {{"bucket_bytes", data.bucket_bytes},
                                       {"rebuilt_bucket_bytes", data.rebuilt_bucket_bytes},
                                       {"parameters", data.parameters},
                                       {"parameter_bytes", data.parameter_bytes},
                                       {"unused_parameter_bytes", data.unused_parameter_bytes},
                                       {"forward_ms", ms(data.forward_ns)},
                                       {"backward_ms", ms(data.backward_ns)},
                                       {"comm_ms", ms(data.comm_ns)},
                                       {"overlap_ms", ms(data.overlap_ns)}};
  return json.dump();
}

RankCommunicator::RankCommunicator(std::unique_ptr<Communicator> real, const RankContext& context,
                                   RankFaults& faults, Probe& probe) {
  const Scenario& scenario = context.plan.scenario;
  Recorder& recorder = context.recorder;
  if (is_staged(scenario))
    real = make_staged(std::move(real), staging_waits(scenario.mutants, context.rank));
  else if (scenario.device == "fake")
    real = with_host_views(std::move(real));
  real_ = std::move(real);
  faulty_network_ = make_faulty_network(*real_, faults, recorder,
                                        context.own_link ? context.own_link() : nullptr);
  mutants_ = make_mutants(*faulty_network_, scenario.mutants, recorder);
  recording_ = make_recording(*mutants_, probe);
  call_mutants_ = make_call_mutants(*recording_, scenario.mutants, recorder);
  faulty_buckets_ = make_faulty_buckets(*call_mutants_, faults);
  if (!has_mutant(scenario.mutants, "unordered_launch", context.rank)) return;
  const auto rank = static_cast<uint64_t>(context.rank);
  pool_ = make_race_mutants(
      *faulty_buckets_, scenario.mutants, [&recorder] { return recorder.step(); },
      [draws = SplitMix64(substream_seed(scenario.seed, "pool", rank))](size_t count) mutable {
        return draws.below(count);
      });
}

}  // namespace lockstep
