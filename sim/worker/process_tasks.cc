#include "sim/worker/process_tasks.h"

#include <algorithm>
#include <cstdio>

#include "golden/statistics.h"
#include "reducer/nccl/nccl.h"
#include "scenarios/faults.h"
#include "scenarios/workloads/rank_devices.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/network_faults.h"
#include "sim/worker/connect.h"
#include "sim/worker/control_store.h"
#include "sim/worker/libraries.h"
#include "sim/worker/own_network.h"
#include "sim/worker/rank_program.h"
#include "sim/worker/sign_in.h"
#include "sim/worker/watch_states.h"

namespace lockstep {
namespace {

Deadline run_deadline(const RunPlan& plan) {
  return deadline_after(std::chrono::milliseconds(plan.scenario.timeouts.run_ms));
}

GoldenKind golden_kind(const std::string& word) {
  for (GoldenKind kind :
       {GoldenKind::replay, GoldenKind::float64, GoldenKind::exact, GoldenKind::one_device})
    if (word == to_word(kind)) return kind;
  LOCKSTEP_CHECK(false, "no golden run is called " + word);
  return GoldenKind::replay;
}

int64_t local_rank_of(const WorkerTask& task) {
  const auto found = std::find(task.host_ranks.begin(), task.host_ranks.end(), task.rank);
  return found == task.host_ranks.end() ? task.rank : found - task.host_ranks.begin();
}

std::unique_ptr<Communicator> connect(const RunPlan& plan, const WorkerTask& task, Control& control,
                                      CommOptions options, Deadline deadline, OwnNetwork* network) {
  std::shared_ptr<Store> store = make_control_store(control);
  if (const Fault* fault = find_fault(plan.scenario.faults, FaultKind::slow_store, task.rank))
    store = make_slow_store(store, fault->options.number("duration_ms"));
  const bool own_address = options.address == CommOptions().address;
  if (own_address && !task.address.empty()) options.address = task.address;
  *network = join_own_network(plan, task, *store, deadline);
  if (own_address && network->link) options.address = network->link->address();
  sign_in(*store, options, task.rank, ranks_of(plan.scenario), deadline);
  const Part& communicator = plan.scenario.communicator;
  if (communicator.kind == "nccl")
    return make_nccl_communicator(
        options, store, rank_devices(plan.scenario, task.rank, local_rank_of(task)).front(),
        deadline);
  const bool hosts = communicator.options.has("ranks_per_host");
  return make_process_communicator(communicator.kind,
                                   hosts ? communicator.options.integer("ranks_per_host") : 0,
                                   options, store, deadline);
}

// Rank 0 writes the stream of what watches its states; all other streams are written by golden
// runs.
std::shared_ptr<StateStream> rank_stream(const WorkerTask& task, const RunPlan& plan,
                                         const std::string& golden, Deadline deadline) {
  const std::string path = stream_path(task.run_dir, golden);
  if (golden != "rounding") return StateStream::open(path, deadline);
  const int64_t bytes = statistic_item(plan.scenario).bytes;
  return StateStream::create(path, {.slot_bytes = bytes, .slots = plan.stream_slots});
}

}  // namespace

int run_rank_process(const WorkerTask& task, const RunPlan& plan, Control& control) {
  prepare_devices(plan.scenario);
  prepare_libtorch(plan.scenario.threads);
  auto recorder = Recorder::create(
      records_path(task.run_dir, task.rank), static_cast<int32_t>(task.rank),
      static_cast<int32_t>(plan.scenario.world_size), static_cast<uint64_t>(plan.record_capacity));
  if (task.rank == 0) leave_libraries(task.run_dir);
  const std::string name = "rank-" + std::to_string(task.rank);
  OwnNetwork network;
  const RankContext around{
      .plan = plan,
      .rank = task.rank,
      .local_rank = local_rank_of(task),
      .recorder = *recorder,
      .connect =
          [&](const CommOptions& options, Deadline deadline) {
            return connect(plan, task, control, options, deadline, &network);
          },
      .stream = [&](const std::string& golden,
                    Deadline deadline) { return rank_stream(task, plan, golden, deadline); },
      .board = [&](int64_t state_bytes, Deadline deadline) -> std::shared_ptr<ReplicaBoard> {
        // Between hosts the hashes in the records alone are compared.
        if (!task.host_ranks.empty()) return nullptr;
        return ReplicaBoard::in_file(task.run_dir + "/replicas.board", task.rank,
                                     plan.scenario.world_size, state_bytes, deadline);
      },
      .own_link = [&] { return network.link.get(); },
      .evidence_path = evidence_path(task.run_dir, task.rank),
      .checkpoint_dir = task.run_dir + "/checkpoint",
      .dump_prefix = task.run_dir + "/" + name};
  const RankEnd end = run_rank(around);
  if (end.evidence.error.kind != ErrorKind::none)
    std::fprintf(stderr, "%s: %s\n", name.c_str(), end.evidence.error.text.c_str());
  return end.exit_code;
}

int run_golden_process(const WorkerTask& task, const RunPlan& plan) {
  prepare_devices(plan.scenario);
  prepare_libtorch(plan.scenario.threads);
  const GoldenKind kind = golden_kind(task.golden);
  const bool shards = plan.shards && kind == GoldenKind::replay;
  const int64_t bytes = golden_item(plan.scenario, kind, shards).bytes;
  auto stream = StateStream::create(
      stream_path(task.run_dir, task.golden),
      {.slot_bytes = bytes, .slots = plan.stream_slots, .consumers = plan.scenario.world_size});
  for (int64_t rank = 0; rank < plan.scenario.world_size && !task.host_ranks.empty(); ++rank)
    if (std::find(task.host_ranks.begin(), task.host_ranks.end(), rank) == task.host_ranks.end())
      stream->leave(rank);  // it has a golden run on its own host
  run_golden(plan.scenario, kind, plan.replay, shards, *stream, run_deadline(plan));
  return kExitDone;
}

int run_rounding_process(const WorkerTask& task, const RunPlan& plan) {
  prepare_devices(plan.scenario);
  prepare_libtorch(plan.scenario.threads);
  auto recorder = Recorder::create(golden_records_path(task.run_dir, "rounding"), -1,
                                   static_cast<int32_t>(plan.scenario.world_size),
                                   static_cast<uint64_t>(plan.record_capacity));
  auto stream = StateStream::open(stream_path(task.run_dir, "rounding"), run_deadline(plan));
  if (stream == nullptr) return kExitException;
  watch_states(plan, *stream, run_deadline(plan), *recorder);
  recorder->append(EventKind::finished);
  return kExitDone;
}

}  // namespace lockstep
