#include "sim/worker/thread_host.h"

#include <pthread.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "golden/statistics.h"
#include "reducer/communicator.h"
#include "scenarios/json/json_text.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/memory_room.h"
#include "sim/worker/libraries.h"
#include "sim/worker/rank_program.h"
#include "sim/worker/watch_states.h"

namespace lockstep {
namespace {

using Streams = std::map<std::string, std::shared_ptr<StateStream>>;

Streams make_streams(const RunPlan& plan, GoldenCache& cache) {
  Streams streams;
  for (GoldenKind kind :
       {GoldenKind::replay, GoldenKind::float64, GoldenKind::exact, GoldenKind::one_device})
    for (const std::string& wanted : plan.goldens)
      if (wanted == to_word(kind)) streams[wanted] = cache.stream(plan, kind);
  if (plan.watches_states())
    streams["rounding"] = StateStream::in_memory(
        {.slot_bytes = statistic_item(plan.scenario).bytes, .slots = plan.scenario.steps});
  return streams;
}

// One board for all ranks: the first to ask makes it.
class SharedBoard {
 public:
  std::shared_ptr<ReplicaBoard> get(int64_t world_size, int64_t state_bytes) {
    const std::lock_guard lock(mutex_);
    if (board_ == nullptr) board_ = ReplicaBoard::in_memory(world_size, state_bytes);
    return board_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<ReplicaBoard> board_;
};

std::vector<std::unique_ptr<Recorder>> make_recorders(const WorkerTask& task, const RunPlan& plan) {
  std::vector<std::unique_ptr<Recorder>> recorders;
  const int64_t ranks = ranks_of(plan.scenario);
  for (int64_t rank = 0; rank < ranks; ++rank)
    recorders.push_back(Recorder::create(records_path(task.run_dir, rank),
                                         static_cast<int32_t>(rank), static_cast<int32_t>(ranks),
                                         static_cast<uint64_t>(plan.record_capacity)));
  return recorders;
}

// The files of the last run serve the next one of the same shape.
struct HostRecorders {
  int64_t world_size = 0;
  int64_t capacity = 0;
  std::vector<std::unique_ptr<Recorder>> recorders;

  void prepare(const WorkerTask& task, const RunPlan& plan) {
    if (world_size == ranks_of(plan.scenario) && capacity == plan.record_capacity) {
      for (auto& recorder : recorders) recorder->clear();
      return;
    }
    recorders = make_recorders(task, plan);
    world_size = ranks_of(plan.scenario);
    capacity = plan.record_capacity;
  }
};

}  // namespace

std::vector<Evidence> run_in_threads(const RunPlan& plan,
                                     const std::vector<std::unique_ptr<Recorder>>& recorders,
                                     GoldenCache& cache, const std::string& dir) {
  const int64_t ranks = ranks_of(plan.scenario);
  Streams streams = make_streams(plan, cache);
  SharedBoard board;
  auto hub = make_local_hub(ranks);
  std::vector<Evidence> evidence(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      pthread_setname_np(pthread_self(), ("lockstep-r" + std::to_string(rank)).c_str());
      const RankContext around{
          .plan = plan,
          .rank = rank,
          .local_rank = rank,
          .recorder = *recorders[static_cast<size_t>(rank)],
          .connect = [&](const CommOptions& options,
                         Deadline) { return make_local_communicator(options, hub); },
          .stream = [&](const std::string& golden, Deadline) { return streams.at(golden); },
          .board = [&](int64_t state_bytes, Deadline) { return board.get(ranks, state_bytes); },
          .evidence_path = "",
          .checkpoint_dir = dir + "/checkpoint",
          .dump_prefix = ""};
      evidence[static_cast<size_t>(rank)] = run_rank(around).evidence;
    });
  for (std::thread& thread : threads) thread.join();
  if (plan.watches_states())
    watch_states(plan, *streams.at("rounding"), Clock::now(), *recorders[0]);
  return evidence;
}

int run_thread_host(const WorkerTask& task, Control& control) {
  GoldenCache cache;
  HostRecorders host;
  std::string text;
  bool first = true;
  while (control.next_run(&text)) {
    const RunPlan plan = plan_from_json(json_or_discarded(text));
    if (std::exchange(first, false)) {
      take_room(ranks_of(plan.scenario));
      prepare_libtorch(plan.scenario.threads);
      leave_libraries(task.run_dir);
    }
    host.prepare(task, plan);
    const std::vector<Evidence> evidence =
        run_in_threads(plan, host.recorders, cache, task.run_dir);
    std::string answer = "[";
    for (const Evidence& one : evidence)
      answer += (answer.size() > 1 ? "," : "") + to_json_text(one);
    control.run_done(answer + "]");
  }
  return kExitDone;
}

}  // namespace lockstep
