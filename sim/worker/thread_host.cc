#include "sim/worker/thread_host.h"

#include <pthread.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "golden/statistics.h"
#include "reducer/communicator.h"
#include "scenarios/base/hash.h"
#include "scenarios/json/json_text.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/limits.h"
#include "sim/worker/libraries.h"
#include "sim/worker/process_tasks.h"
#include "sim/worker/rank_program.h"

namespace lockstep {
namespace {

// All that a golden run depends on, as text.
std::string settings_of(const RunPlan& plan, GoldenKind kind) {
  nlohmann::ordered_json scenario = as_json(plan.scenario);
  for (const char* other : {"name", "what", "expect", "reducer", "communicator", "timeouts",
                            "mutants", "lanes", "golden", "device"})
    scenario.erase(other);
  std::string text = std::string(to_word(kind)) + scenario.dump();
  text += std::to_string(shards_of(plan.scenario));
  if (kind == GoldenKind::invariant) text += "," + std::to_string(plan.replay.exchange_in_step);
  if (kind != GoldenKind::replay) return text;
  const ReplayRule& rule = plan.replay;
  text += rule.layout + rule.division_first_step + rule.division_later + rule.algorithm +
          rule.added_as + std::to_string(rule.rebuild) + std::to_string(rule.broadcast_buffers) +
          std::to_string(rule.rebuild_after_step) + std::to_string(plan.shards);
  if (rule.layout == "ddp")  // sizes are meant by no other layout
    text += std::to_string(rule.first_bucket_bytes) + "," + std::to_string(rule.bucket_cap_bytes);
  return text;
}

// The consumer is this very thread, right after the producer: nothing is ever waited for.
Deadline at_once() { return deadline_after(std::chrono::milliseconds(1)); }

using Streams = std::map<std::string, std::shared_ptr<StateStream>>;

Streams make_streams(const RunPlan& plan, GoldenCache& cache) {
  Streams streams;
  for (GoldenKind kind : {GoldenKind::replay, GoldenKind::float64, GoldenKind::exact,
                          GoldenKind::invariant, GoldenKind::one_device})
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

GoldenCache::Items GoldenCache::make(const RunPlan& plan, GoldenKind kind) const {
  const Scenario& scenario = plan.scenario;
  const bool shards = plan.shards && kind == GoldenKind::replay;
  Items items;
  items.slot_bytes = golden_item(scenario, kind, shards).bytes;
  const int64_t count = scenario.steps + 1;
  auto stream = StateStream::in_memory({.slot_bytes = items.slot_bytes, .slots = count});
  run_golden(scenario, kind, plan.replay, shards, *stream, at_once());
  items.bytes.resize(static_cast<size_t>(count * items.slot_bytes));
  for (int64_t item = 0; item < count; ++item) {
    const std::byte* bytes = stream->begin_read(0, item, at_once());
    if (bytes == nullptr) throw std::runtime_error("a golden run ended early");
    std::memcpy(items.bytes.data() + item * items.slot_bytes, bytes,
                static_cast<size_t>(items.slot_bytes));
    stream->end_read(0);
  }
  return items;
}

std::shared_ptr<StateStream> GoldenCache::stream(const RunPlan& plan, GoldenKind kind) {
  const std::string settings = settings_of(plan, kind);
  auto found = entries_.find(settings);
  if (found == entries_.end()) {
    if (order_.size() == kEntriesMax) {
      entries_.erase(order_.front());
      order_.erase(order_.begin());
    }
    found = entries_.emplace(settings, make(plan, kind)).first;
    order_.push_back(settings);
  }
  const Items& items = found->second;
  const int64_t count = plan.scenario.steps + 1;
  std::shared_ptr<StateStream> stream = StateStream::in_memory(
      {.slot_bytes = items.slot_bytes, .slots = count, .consumers = ranks_of(plan.scenario)});
  for (int64_t item = 0; item < count; ++item) {
    std::memcpy(stream->begin_write(at_once()), items.bytes.data() + item * items.slot_bytes,
                static_cast<size_t>(items.slot_bytes));
    stream->end_write();
  }
  stream->finish();
  return stream;
}

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
