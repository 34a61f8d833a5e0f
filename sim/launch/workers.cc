#include "sim/launch/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "scenarios/base/error.h"
#include "sim/launch/files.h"
#include "sim/launch/process_state.h"
#include "sim/record/core_wait.h"

namespace lockstep {
namespace {

constexpr size_t kForksInFlight = 32;  // more could fill both directions of the socket
constexpr int kZygotesMax = 3;

// Until the other end of its control socket is closed everywhere: in the zygote, and by the death
// of the worker, started or about to be.
void wait_until_gone(const Worker& worker) {
  pollfd end{worker.control.fd(), 0, 0};
  if (worker.control.is_open()) ::poll(&end, 1, 1000);
}

int64_t number(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

struct Workers::Zygote {
  Spawned process;
  Channel channel;
  std::string log;
  bool ready = false;
  bool killed = false;  // by us
  size_t in_flight = 0;
};

Workers::Workers(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Workers::~Workers() {
  for (const auto& [token, worker] : running_) {
    deliver(*worker, SIGKILL);
    loop_.forget(worker->control.fd());
    if (!worker->fresh) continue;  // the zygote's, and it goes with it
    loop_.forget(worker->pidfd.get());
    int status = 0;
    ::waitpid(worker->pid, &status, 0);
  }
  if (!zygote_) return;
  loop_.forget(zygote_->channel.fd());
  loop_.forget(zygote_->process.pidfd.get());
  kill_and_reap(zygote_->process);
  remove_if_empty(zygote_->log);
  zygote_.reset();
  to_fork_.clear();
  for (const auto& [token, worker] : running_)
    if (!worker->fresh) wait_until_gone(*worker);
}

void Workers::start_zygote() {
  auto [ours, theirs] = Channel::pair();
  zygote_ = std::make_unique<Zygote>();
  zygote_->log = log_path(options_.out_dir, "zygote");
  zygote_->process = spawn(
      {{options_.program, "--zygote", std::to_string(kPassedFd)}, 1, zygote_->log, theirs.fd()});
  zygote_->channel = std::move(ours);
  loop_.watch(zygote_->channel.fd(), [this] { on_zygote(); });
  loop_.watch(zygote_->process.pidfd.get(), [this] { on_zygote_gone(); });
}

std::shared_ptr<Worker> Workers::start(const WorkerTask& task, int64_t blas_threads,
                                       OnMessage on_message) {
  auto [ours, theirs] = Channel::pair();
  auto worker = std::make_shared<Worker>();
  worker->task = task;
  worker->who = process_label(task);
  worker->token = ++last_token_;
  worker->control = std::move(ours);
  worker->on_message = std::move(on_message);
  worker->fresh = options_.fresh || blas_threads > 1;
  if (worker->fresh) {
    start_fresh(worker, blas_threads, std::move(theirs));
  } else {
    if (!zygote_) start_zygote();
    to_fork_.push_back({worker, std::move(theirs)});
  }
  running_[worker->token] = worker;
  loop_.watch(worker->control.fd(), [this, worker] { on_control(*worker); });
  flush_starts();
  return worker;
}

void Workers::start_fresh(const std::shared_ptr<Worker>& worker, int64_t blas_threads,
                          Channel theirs) {
  Spawned spawned = spawn(
      {{options_.program, "--task", encode(worker->task), "--control", std::to_string(kPassedFd)},
       blas_threads,
       log_path(worker->task.run_dir, worker->who),
       theirs.fd()});
  worker->pid = spawned.pid;
  worker->pidfd = std::move(spawned.pidfd);
  loop_.watch(worker->pidfd.get(), [this, worker] {
    int status = 0;
    const pid_t got = ::waitpid(worker->pid, &status, WNOHANG);
    if (got == 0) return;
    loop_.forget(worker->pidfd.get());
    on_ended(worker, got == worker->pid ? status : W_EXITCODE(1, 0), now_ns());
  });
}

int64_t Workers::core_wait_ns() const {
  const int64_t own_ns = core_wait_of_main_thread(::getpid());
  return own_ns + (zygote_ ? core_wait_of_main_thread(zygote_->process.pid) : 0);
}

void Workers::flush_starts() {
  while (zygote_ && !to_fork_.empty() && zygote_->in_flight < kForksInFlight) {
    const Waiting next = std::move(to_fork_.front());
    to_fork_.pop_front();
    ++zygote_->in_flight;
    // If it is gone, its pidfd will say so.
    if (!zygote_->channel.send(
            {"start", std::to_string(next.worker->token), encode(next.worker->task)},
            next.theirs.fd()))
      return;
  }
}

void Workers::on_zygote() {
  Channel::Message message;
  UniqueFd passed;
  while (zygote_) {
    const Channel::Got got = zygote_->channel.receive(&message, &passed);
    if (got == Channel::Got::closed) loop_.forget(zygote_->channel.fd());
    if (got != Channel::Got::message) break;
    on_zygote_message(message, std::move(passed));
  }
  flush_starts();
}

void Workers::on_zygote_message(const Channel::Message& message, UniqueFd passed) {
  if (message[0] == "ready") {
    zygote_->ready = true;
  } else if (message[0] == "started" && message.size() == 3) {
    --zygote_->in_flight;
    const std::shared_ptr<Worker> worker = running_.at(number(message[1]));
    worker->pid = static_cast<pid_t>(number(message[2]));
    worker->pidfd = std::move(passed);
    // Without it nothing could end this process: all that the zygote started goes with the zygote.
    if (!worker->pidfd.valid())
      problem_ = fmt::format("cannot start {}: the zygote could open no descriptor of its process",
                             worker->who);
    if (worker->pending_signal != 0) deliver(*worker, worker->pending_signal);
  } else if (message[0] == "ended") {
    for (size_t i = 1; i + 2 < message.size(); i += 3)
      on_ended(running_.at(number(message[i])), static_cast<int>(number(message[i + 1])),
               number(message[i + 2]));
  } else if (message[0] == "refused" && message.size() == 3) {
    problem_ = "cannot start a worker: " + message[2];
  } else {
    LOCKSTEP_CHECK(false, "unknown message from the zygote: " + message[0]);
  }
}

// Its workers go down with it: none of them failed by itself.
void Workers::on_zygote_gone() {
  loop_.forget(zygote_->process.pidfd.get());
  on_zygote();  // what it still had to say
  loop_.forget(zygote_->channel.fd());
  const int status = try_reap(zygote_->process);
  const bool hopeless = (!zygote_->ready && !zygote_->killed) || ++zygote_deaths_ == kZygotesMax;
  if (hopeless)
    problem_ =
        fmt::format("{} {}: {}", options_.program, describe_end(status), log_tail(zygote_->log, 3));
  zygote_.reset();
  to_fork_.clear();
  const auto lost = running_;
  for (const auto& [token, worker] : lost) {
    if (worker->fresh) continue;
    deliver(*worker, SIGKILL);
    wait_until_gone(*worker);
    worker->lost_zygote = worker->by_launcher = true;
    on_ended(worker, SIGKILL, now_ns());
  }
}

void Workers::on_control(Worker& worker) {
  Channel::Message message;
  while (worker.control.is_open()) {
    const Channel::Got got = worker.control.receive(&message);
    if (got == Channel::Got::nothing) return;
    if (got == Channel::Got::closed) {
      loop_.forget(worker.control.fd());
      worker.control.close();
      return;
    }
    worker.on_message(message);
  }
}

void Workers::on_ended(const std::shared_ptr<Worker>& worker, int status, int64_t time_ns) {
  on_control(*worker);  // its last words
  if (worker->control.is_open()) {
    loop_.forget(worker->control.fd());
    worker->control.close();
  }
  worker->ended = true;
  worker->status = status;
  worker->ended_ns = time_ns;
  worker->on_message = nullptr;  // it may hold what holds the worker
  worker->pidfd.reset();
  running_.erase(worker->token);
}

void Workers::deliver(Worker& worker, int signal) {
  if (worker.pid == 0)
    worker.pending_signal = signal;
  else
    send_signal(worker.pidfd, signal);
}

void Workers::end(Worker& worker, std::chrono::milliseconds grace) {
  if (worker.ended) return;
  const Deadline kill_at = deadline_after(grace);
  if (!worker.by_launcher) deliver(worker, grace.count() > 0 ? SIGTERM : SIGKILL);
  worker.by_launcher = true;
  worker.kill_at = std::min(worker.kill_at, kill_at);
}

bool Workers::ask_for_stack(const Worker& worker) {
  if (worker.ended || worker.pid == 0 || is_stopped(read_process_state(worker.pid)) ||
      !catches_signal(worker.pid, stack_signal()))
    return false;
  send_signal(worker.pidfd, stack_signal());
  return true;
}

void Workers::tick(Deadline now) {
  for (const auto& [token, worker] : running_) {
    if (now < worker->kill_at) continue;
    worker->kill_at = kNoDeadline;
    deliver(*worker, SIGKILL);
    // It never started: the zygote itself does not answer.
    if (worker->pid != 0 || !zygote_) continue;
    zygote_->killed = true;
    send_signal(zygote_->process.pidfd, SIGKILL);
  }
}

void Workers::check() {
  if (!problem_.empty()) throw std::runtime_error(problem_);
}

}  // namespace lockstep
