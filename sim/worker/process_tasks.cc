#include "sim/worker/process_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <vector>

#include "golden/statistics.h"
#include "reducer/hierarchical/hierarchical.h"
#include "reducer/nccl/nccl.h"
#include "scenarios/faults.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/network_faults.h"
#include "sim/worker/libraries.h"
#include "sim/worker/rank_program.h"

namespace lockstep {
namespace {

class ControlStore : public Store {
 public:
  explicit ControlStore(Control& control) : control_(control) {}
  void set(const std::string& key, const std::string& value) override { control_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    std::string value;
    if (!control_.get(key, deadline, &value))
      throw CommError(CommFailure::timeout, "rendezvous: no rank has set \"" + key + "\" in time");
    return value;
  }
  int64_t add(const std::string& key, int64_t amount) override { return control_.add(key, amount); }
  bool has(const std::string& key) override { return control_.has(key); }

 private:
  Control& control_;
};

struct Claim {
  int64_t rank = 0, world_size = 0;
};

std::string key_of(int64_t process) { return fmt::format("sign-in/{}", process); }

Claim parse(const std::string& text) {
  const size_t space = text.find(' ');
  return {std::stoll(text.substr(0, space)), std::stoll(text.substr(space + 1))};
}

int64_t usual_world_size(const std::vector<Claim>& claims) {
  std::map<int64_t, int64_t> votes;
  for (const Claim& claim : claims) ++votes[claim.world_size];
  int64_t best = claims.front().world_size;
  for (const auto& [size, count] : votes)
    if (count > votes[best]) best = size;
  return best;
}

// "2 why" for process 2, or "" where all fits.
std::string judge(const std::vector<Claim>& claims) {
  const int64_t world_size = usual_world_size(claims);
  for (size_t p = 0; p < claims.size(); ++p)
    if (claims[p].world_size != world_size)
      return fmt::format("{} process {} expects {} ranks, the others {}", p, p,
                         claims[p].world_size, world_size);
  for (size_t p = 0; p < claims.size(); ++p)
    for (size_t other = 0; other < claims.size(); ++other) {
      if (p == other || claims[p].rank != claims[other].rank) continue;
      const bool own = claims[p].rank == static_cast<int64_t>(p);
      const size_t wrong = own ? other : p;
      return fmt::format("{} processes {} and {} both say that they are rank {}", wrong,
                         std::min(p, other), std::max(p, other), claims[p].rank);
    }
  return "";
}

std::string verdict_of_all(Store& store, int64_t processes, Deadline deadline) {
  std::vector<Claim> claims;
  for (int64_t p = 0; p < processes; ++p) {
    try {
      claims.push_back(parse(store.get(key_of(p), deadline)));
    } catch (const CommError& error) {
      if (error.kind() != CommFailure::timeout) throw;
      throw CommError(CommFailure::timeout, fmt::format("rendezvous: rank {} has not signed in", p),
                      {.peer = p});
    }
  }
  return judge(claims);
}

constexpr const char* kNetworkKey = "own-network";

// "+PATH" of the switch, or "-REASON" why there is none.
std::string offer(const RunPlan& plan, const WorkerTask& task, OwnNetwork* network) {
  const std::string& kind = plan.scenario.communicator.kind;
  const bool shm = kind == "shm" || kind == "hierarchical";
  std::string why =
      shm ? "ranks that share memory have no links" : "ranks of several hosts have links already";
  if (task.host_ranks.empty() && !shm) network->run_switch = RunSwitch::make(&why);
  return network->run_switch ? "+" + network->run_switch->path() : "-" + why;
}

std::unique_ptr<Communicator> connect_one(const std::string& kind, int64_t ranks_per_host,
                                          const CommOptions& options,
                                          const std::shared_ptr<Store>& store, Deadline deadline) {
  if (kind == "c10d") return make_c10d_communicator(options, store, deadline);
  if (kind == "shm") return make_shm_communicator(options, store, deadline);
  if (kind == "hierarchical")
    return make_hierarchical_communicator(options, ranks_per_host, store, deadline);
  return make_gloo_communicator(options, store, deadline);
}

std::vector<Statistic> statistics_of(const RunPlan& plan) {
  std::vector<Statistic> statistics;
  if (plan.rounding) statistics.push_back(Statistic::rounding);
  if (plan.communication) statistics.push_back(Statistic::communication);
  return statistics;
}

Lane lane_of(Statistic statistic) {
  return statistic == Statistic::rounding ? Lane::rounding : Lane::communication;
}

Deadline run_deadline(const RunPlan& plan) {
  return deadline_after(std::chrono::milliseconds(plan.scenario.timeouts.run_ms));
}

GoldenKind golden_kind(const std::string& word) {
  for (GoldenKind kind : {GoldenKind::replay, GoldenKind::float64, GoldenKind::exact,
                          GoldenKind::invariant, GoldenKind::one_device})
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

std::shared_ptr<Store> make_control_store(Control& control) {
  return std::make_shared<ControlStore>(control);
}

void sign_in(Store& store, const CommOptions& options, int64_t process, int64_t processes,
             Deadline deadline) {
  store.set(key_of(process), fmt::format("{} {}", options.rank, options.world_size));
  std::string verdict;
  if (process == 0) {
    verdict = verdict_of_all(store, processes, deadline);
    store.set("sign-in/verdict", verdict);
  } else {
    verdict = store.get("sign-in/verdict", deadline);
  }
  if (verdict.empty()) return;
  const int64_t wrong = std::stoll(verdict);
  throw CommError(wrong == process ? CommFailure::rejected : CommFailure::peer_lost,
                  "rendezvous: " + verdict.substr(verdict.find(' ') + 1), {.peer = wrong});
}

OwnNetwork join_own_network(const RunPlan& plan, const WorkerTask& task, Store& store,
                            Deadline deadline) {
  OwnNetwork network;
  const std::vector<Fault>& faults = plan.scenario.faults;
  if (std::none_of(faults.begin(), faults.end(), by_own_link)) return network;
  if (task.rank == 0) store.set(kNetworkKey, offer(plan, task, &network));
  const std::string answer = store.get(kNetworkKey, deadline);
  if (answer.front() == '+') {
    network.link = OwnLink::join(answer.substr(1), task.rank);
  } else if (std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
               return by_own_link(fault) && fault.options.text("means") == "veth";
             })) {
    throw std::runtime_error("means \"veth\" of a fault: " + answer.substr(1));
  }
  return network;
}

std::unique_ptr<Communicator> make_process_communicator(const std::string& kind,
                                                        int64_t ranks_per_host,
                                                        const CommOptions& options,
                                                        const std::shared_ptr<Store>& store,
                                                        Deadline deadline) {
  auto communicator = connect_one(kind, ranks_per_host, options, store, deadline);
  // A rank that fails as soon as it is connected would end the others that are not yet: what Gloo
  // throws then (getpeername: not connected) nobody catches on its own thread.
  const std::string prefix = options.prefix + "connected";
  if (store->add(prefix, 1) == options.world_size) store->set(prefix + "/all", "1");
  store->get(prefix + "/all", deadline);
  return communicator;
}

void watch_states(const RunPlan& plan, StateStream& stream, Deadline deadline, Recorder& recorder) {
  const auto record = [&](int64_t step, Statistic statistic, const StatisticStep& result) {
    const auto lane = static_cast<int32_t>(lane_of(statistic));
    recorder.set_step(static_cast<int32_t>(step));
    recorder.append(EventKind::statistic, lane, std::bit_cast<uint64_t>(result.r),
                    static_cast<uint32_t>(result.entry));
    if (result.has_control)
      recorder.append(EventKind::control, lane, result.control_r > threshold_of(statistic));
  };
  run_statistics(plan.scenario, plan.replay, statistics_of(plan), stream, deadline, record);
}

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
