#include "sim/launch/thread_hosts.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

#include "scenarios/json/json_text.h"
#include "sim/launch/run_files.h"
#include "sim/record/evidence.h"
#include "sim/record/recorder.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHostCheckEvery{50};
constexpr milliseconds kHostSlack{250};
constexpr milliseconds kHostTermGrace{500};
constexpr milliseconds kHostInterruptGrace{200};
constexpr int kIdleDeathsMax = 3;
constexpr int kHostTailLines = 20;

// One text per rank, from an array of documents.
std::vector<std::string> split_evidence(const std::string& text, size_t ranks) {
  std::vector<std::string> all(ranks);
  const auto array = json_or_discarded(text);
  if (!array.is_array()) return all;
  for (size_t i = 0; i < std::min(ranks, array.size()); ++i)
    if (array[i].is_object()) all[i] = array[i].dump();
  return all;
}

int exit_code_of(const std::string& evidence) {
  const auto read = evidence_from_json_text(evidence);
  if (!read) return kExitException;
  switch (read->error.kind) {
    case ErrorKind::none:
      return kExitDone;
    case ErrorKind::exception:
    case ErrorKind::checkpoint:
      return kExitException;
    case ErrorKind::timeout:
    case ErrorKind::peer_lost:
    case ErrorKind::rejected:
    case ErrorKind::closed:
      return kExitCommError;
  }
  return kExitException;
}

// When this rank failed, or when it was done: its own last word.
int64_t time_of_end(const RankRecords& records) {
  const auto is_end = [](const Event& event) {
    const auto kind = static_cast<EventKind>(event.kind);
    return kind == EventKind::error || kind == EventKind::finished;
  };
  const auto found = std::find_if(records.events.begin(), records.events.end(), is_end);
  return found == records.events.end() ? now_ns() : found->time_ns;
}

bool has_finished(const RankRecords& records) {
  return std::any_of(records.events.begin(), records.events.end(), [](const Event& event) {
    return event.kind == static_cast<uint16_t>(EventKind::finished);
  });
}

void sort_by_time(std::vector<ProcessEnd>* ends) {
  std::stable_sort(ends->begin(), ends->end(),
                   [](const ProcessEnd& a, const ProcessEnd& b) { return a.time_ns < b.time_ns; });
  for (size_t i = 0; i < ends->size(); ++i) (*ends)[i].order = static_cast<int64_t>(i);
}

// Threads fail within one process: the first of them is when it is known.
void note_failure(RunOutcome* outcome) {
  for (const ProcessEnd& end : outcome->ends) {
    if (end.signal == 0 && end.exit_code == kExitDone) continue;
    outcome->failed_ns = end.time_ns;
    return;
  }
}

}  // namespace

ThreadHosts::ThreadHosts(Workers& workers, const std::vector<RunPlan>& plans, std::string out_dir,
                         Deliver deliver)
    : workers_(workers), plans_(plans), out_dir_(std::move(out_dir)), deliver_(std::move(deliver)) {
  for (const RunPlan& plan : plans)
    idle_max_ = std::max(idle_max_, milliseconds(plan.scenario.timeouts.run_ms));
}

ThreadHosts::~ThreadHosts() {
  for (int64_t host = 0; host < last_host_; ++host)
    remove_dir(fmt::format("{}/host-{}", out_dir_, host));
}

void ThreadHosts::start(size_t count) {
  for (size_t i = std::min(count, queue_.size()); i > 0; --i) start_host();
}

void ThreadHosts::start_host() {
  int64_t blas_threads = 1;
  for (const size_t index : queue_)
    blas_threads = std::max(blas_threads, plans_[index].scenario.threads);
  Host& host = hosts_.emplace_back();
  const int64_t number = last_host_++;
  host.began = Clock::now();
  host.dir = fmt::format("{}/host-{}", out_dir_, number);
  make_dir(host.dir);
  host.worker =
      workers_.start({"thread_host", "", number, host.dir}, blas_threads,
                     [this, &host](const Channel::Message& message) { on_message(host, message); });
}

void ThreadHosts::on_message(Host& host, const Channel::Message& message) {
  if (message.size() != 2) return;
  if (message[0] == "next") next_run(host, message[1]);
  if (message[0] == "done" && host.current) run_done(host, message[1]);
}

void ThreadHosts::next_run(Host& host, const std::string& id) {
  if (queue_.empty() || interrupted_) {
    host.worker->control.send({id, "end"});
    return;
  }
  idle_deaths_ = 0;
  host.current = queue_.front();
  queue_.pop_front();
  host.began = host.changed = Clock::now();
  host.next_check = host.began + kHostCheckEvery;
  host.appended = 0;
  for (int64_t rank = 0; rank < ranks_of(plan_of(host).scenario); ++rank)
    mark_empty(records_path(host.dir, rank));
  host.worker->control.send({id, "run", to_text(plan_of(host))});
}

RunOutcome ThreadHosts::outcome_of(const Host& host) const {
  RunOutcome outcome;
  outcome.plan = plan_of(host);
  outcome.run_dir = run_dir_of(out_dir_, *host.current);
  outcome.ranks = read_all_records(host.dir, ranks_of(outcome.plan.scenario));
  outcome.duration_ms = std::chrono::duration_cast<milliseconds>(Clock::now() - host.began).count();
  outcome.began_ns = std::chrono::nanoseconds(host.began.time_since_epoch()).count();
  outcome.interrupted = interrupted_;
  return outcome;
}

void ThreadHosts::run_done(Host& host, const std::string& evidence) {
  RunOutcome outcome = outcome_of(host);
  outcome.evidence = split_evidence(evidence, outcome.ranks.size());
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    ProcessEnd end;
    end.who = fmt::format("rank-{}", rank);
    end.rank = static_cast<int64_t>(rank);
    end.exit_code = exit_code_of(outcome.evidence[rank]);
    end.time_ns = time_of_end(outcome.ranks[rank]);
    outcome.ends.push_back(std::move(end));
    outcome.log_tails.emplace_back();
  }
  sort_by_time(&outcome.ends);
  note_failure(&outcome);
  finish(host, std::move(outcome));
}

// The host has died with a run in its hands: every rank that had not finished went with it.
void ThreadHosts::run_lost(Host& host) {
  RunOutcome outcome = outcome_of(host);
  const Worker& worker = *host.worker;
  const std::string tail = log_tail(log_path(host.dir, worker.who), kHostTailLines);
  outcome.evidence.resize(outcome.ranks.size());
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    ProcessEnd end;
    end.who = fmt::format("rank-{}", rank);
    end.rank = static_cast<int64_t>(rank);
    const bool finished = has_finished(outcome.ranks[rank]);
    end.time_ns = finished ? time_of_end(outcome.ranks[rank]) : worker.ended_ns;
    end.by_launcher = worker.by_launcher && !finished;
    end.past_deadline = worker.past_deadline && !finished;
    if (finished)
      end.exit_code = kExitDone;
    else if (WIFSIGNALED(worker.status))
      end.signal = WTERMSIG(worker.status);
    else
      end.exit_code = std::max(1, WEXITSTATUS(worker.status));
    outcome.ends.push_back(std::move(end));
    outcome.log_tails.push_back(finished ? "" : tail);
  }
  if (worker.lost_zygote)
    outcome.golden_problem = "lockstep-zygote has ended, and all of its workers with it";
  sort_by_time(&outcome.ends);
  note_failure(&outcome);
  finish(host, std::move(outcome));
}

// The host's files are the next run's soon: what is to stay is copied now.
void ThreadHosts::finish(Host& host, RunOutcome outcome) {
  const size_t index = *host.current;
  const std::string dir = outcome.run_dir;
  RunOutcome kept;  // what is left in ends.json
  kept.ends = outcome.ends;
  kept.log_tails = outcome.log_tails;
  kept.golden_problem = outcome.golden_problem;
  kept.duration_ms = outcome.duration_ms;
  kept.interrupted = outcome.interrupted;
  const std::vector<std::string> evidence = outcome.evidence;
  const bool keep = deliver_(index, std::move(outcome));
  host.current.reset();
  host.began = Clock::now();
  if (!keep) return;
  make_dir(dir);
  const std::string plan = to_text(plans_[index]);
  write_file(plan_path(dir), plan);
  write_ends(kept, dir, plan);
  for (size_t i = 0; i < evidence.size(); ++i) {
    const auto rank = static_cast<int64_t>(i);
    write_file(records_path(dir, rank), read_file(records_path(host.dir, rank)));
    if (!evidence[i].empty()) write_file(evidence_path(dir, rank), evidence[i]);
  }
  write_file(log_path(dir, host.worker->who), read_file(log_path(host.dir, host.worker->who)));
}

void ThreadHosts::end_late(Host& host) {
  host.worker->past_deadline = true;
  if (host.worker->pid != 0)
    append_to_file(log_path(host.dir, host.worker->who), describe_process(host.worker->pid));
  workers_.end(*host.worker, kHostTermGrace);
}

void ThreadHosts::check_deadlines(Host& host, Deadline now) {
  if (now < host.next_check || host.worker->by_launcher) return;
  host.next_check = now + kHostCheckEvery;
  if (!host.current) {  // it loads, or is about to ask for a run or to end
    if (now > host.began + idle_max_ + kHostSlack) end_late(host);
    return;
  }
  const Scenario& scenario = plan_of(host).scenario;
  uint64_t appended = 0;
  for (int64_t rank = 0; rank < ranks_of(scenario); ++rank)
    if (const auto pulse = read_pulse(records_path(host.dir, rank))) appended += pulse->appended;
  if (appended != host.appended) host.changed = now;
  host.appended = appended;
  if (now <= host.changed + milliseconds(scenario.timeouts.step_ms) + kHostSlack &&
      now <= host.began + milliseconds(scenario.timeouts.run_ms) + kHostSlack)
    return;
  end_late(host);
}

void ThreadHosts::advance(Deadline now) {
  size_t replacements = 0;
  for (auto host = hosts_.begin(); host != hosts_.end();) {
    if (!host->worker->ended) {
      check_deadlines(*host, now);
      ++host;
      continue;
    }
    const bool wanted = !queue_.empty() && !interrupted_;
    if (!host->current && host->worker->status != 0 && wanted && ++idle_deaths_ == kIdleDeathsMax)
      throw std::runtime_error(fmt::format("{} {}: {}", host->worker->who,
                                           describe_end(host->worker->status),
                                           log_tail(log_path(host->dir, host->worker->who), 3)));
    if (host->current) run_lost(*host);
    host = hosts_.erase(host);
    ++replacements;
  }
  if (!interrupted_) start(replacements);
}

void ThreadHosts::interrupt() {
  for (Host& host : hosts_)
    workers_.end(*host.worker, interrupted_ ? milliseconds(0) : kHostInterruptGrace);
  interrupted_ = true;
  queue_.clear();
}

}  // namespace lockstep
