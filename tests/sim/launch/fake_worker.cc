// The tasks of the tests' worker program: no training, but the behaviour that the scenario's name
// asks for ("crash:2" is rank 2 or run 2 crashing), with real records, store and evidence.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "sim/plan/plan.h"
#include "sim/record/evidence.h"
#include "sim/record/recorder.h"
#include "sim/worker/main/tasks.h"

namespace lockstep {

// Has a name in a stack, as functions that are not of one file have.
[[gnu::noinline]] void hang_for_good() {
  while (true) ::pause();
}

namespace {

using std::chrono::milliseconds;

// "hang:1" asked of 1 is "hang"; of 0 it is "".
std::string behaviour_of(const RunPlan& plan, int64_t subject) {
  const std::string& name = plan.scenario.name;
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return "";
  return name.substr(colon + 1) == std::to_string(subject) ? name.substr(0, colon) : "";
}

RunPlan read_plan(const std::string& run_dir) {
  std::ifstream file(plan_path(run_dir));
  return plan_from_json(nlohmann::ordered_json::parse(
      std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>())));
}

void write_evidence(const std::string& path, ErrorKind kind, const std::string& message) {
  Evidence evidence;
  evidence.error.kind = kind;
  evidence.error.text = message;
  std::ofstream(path) << to_json_text(evidence);
}

// All ranks say that they are here and wait for all others: a peer that dies is noticed, as over a
// closed connection, by its pid.
bool meet(Control& control, const std::string& place, int64_t rank, int64_t world_size) {
  control.set(fmt::format("{}/{}", place, rank), std::string("\0bytes\xff", 7));
  for (int64_t peer = 0; peer < world_size; ++peer) {
    const std::string key = fmt::format("{}/{}", place, peer);
    std::string value, pid;
    while (!control.get(key, deadline_after(milliseconds(10)), &value)) {
      if (!control.get(fmt::format("pid/{}", peer), deadline_after(milliseconds(10)), &pid))
        continue;
      // A peer that was here before it ended has not failed: the launcher was only slow to say so.
      const bool gone = ::kill(static_cast<pid_t>(std::stoi(pid)), 0) != 0;
      if (gone && !control.has(key)) return false;
    }
    if (value != std::string("\0bytes\xff", 7))
      throw std::runtime_error("the store has changed a value");
  }
  return true;
}

void misbehave(const std::string& how) {
  if (how == "hang") hang_for_good();
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "crash") ::raise(SIGSEGV);
  if (how == "killed") ::raise(SIGKILL);
  if (how == "exit") ::_exit(7);
  if (how == "leave") ::_exit(0);
  if (how == "throw") throw std::runtime_error("thrown by the test");
  if (how != "sleep") return;
  fmt::print("asleep\n");
  std::this_thread::sleep_for(milliseconds(30'000));
}

int fake_rank(const WorkerTask& task, const RunPlan& plan, Control& control) {
  const int64_t ranks = plan.scenario.world_size;
  auto recorder =
      Recorder::create(records_path(task.run_dir, task.rank), static_cast<int32_t>(task.rank),
                       static_cast<int32_t>(ranks), static_cast<uint64_t>(plan.record_capacity));
  recorder->enter(Phase::rendezvous);
  fmt::print("rank {} has pid {}\n", task.rank, ::getpid());
  control.set(fmt::format("pid/{}", task.rank), std::to_string(::getpid()));
  const std::string how = behaviour_of(plan, task.rank);
  if (how == "absent") misbehave("hang");
  std::string never;
  if (how == "waits") control.get("never", kNoDeadline, &never);
  bool together = meet(control, "begin", task.rank, ranks);
  recorder->enter(Phase::construction);
  for (int32_t step = 1; step <= plan.scenario.steps; ++step) {
    recorder->set_step(step);
    recorder->enter(Phase::backward);
    if (step == 1 && plan.scenario.name == "sleep") misbehave("sleep");
    if (step == 1) misbehave(how);
    together = together && meet(control, fmt::format("step-{}", step), task.rank, ranks);
    if (!together) {
      recorder->append(EventKind::error, 1);
      write_evidence(evidence_path(task.run_dir, task.rank), ErrorKind::peer_lost,
                     "a peer is gone");
      return kExitCommError;
    }
  }
  recorder->append(EventKind::finished);
  write_evidence(evidence_path(task.run_dir, task.rank), ErrorKind::none, "");
  return kExitDone;
}

// A run in threads, without the threads.
int fake_host(const WorkerTask& task, Control& control) {
  std::string text;
  while (control.next_run(&text)) {
    const RunPlan plan = plan_from_json(nlohmann::ordered_json::parse(text));
    std::string all = "[";
    for (int64_t rank = 0; rank < plan.scenario.world_size; ++rank) {
      misbehave(behaviour_of(plan, rank));
      auto recorder = Recorder::create(records_path(task.run_dir, rank), static_cast<int32_t>(rank),
                                       static_cast<int32_t>(plan.scenario.world_size), 64);
      recorder->append(EventKind::final_hash_low, -1, plan.scenario.seed);
      recorder->append(EventKind::finished);
      Evidence evidence;
      evidence.final_hash = std::to_string(plan.scenario.seed);
      all += (rank > 0 ? "," : "") + to_json_text(evidence);
    }
    control.run_done(all + "]");
    if (plan.scenario.name == "idle") misbehave("hang");
  }
  return kExitDone;
}

}  // namespace

std::string worker_profile(const std::string&, int64_t) { return "{}"; }
int worker_explore(const std::string&) { return 0; }

// As LibTorch does: a thread that is still listed for a moment.
void prepare_forks() {
  std::thread([] { std::this_thread::sleep_for(milliseconds(20)); }).detach();
}

std::string worker_libraries() { return "{}"; }
std::string worker_devices() { return "{}"; }
std::string worker_unknown_names(const std::vector<std::string>&) { return "[]"; }

int run_task(const WorkerTask& task, Control& control) {
  if (task.role == "thread_host") return fake_host(task, control);
  const RunPlan plan = read_plan(task.run_dir);
  if (task.role == "rank") return fake_rank(task, plan, control);
  if (plan.scenario.name == "golden_dies") {
    fmt::print(stderr, "no golden today\n");
    return 3;
  }
  if (plan.scenario.name == "golden_hangs") misbehave("hang");
  auto recorder = Recorder::create(golden_records_path(task.run_dir, task.golden), -1, 1, 16);
  recorder->append(EventKind::finished);
  return kExitDone;
}

}  // namespace lockstep
