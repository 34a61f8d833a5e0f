#include "sim/launch/process_run.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>

#include "sim/launch/executor.h"
#include "sim/launch/limits.h"
#include "sim/launch/run_files.h"
#include "sim/record/recorder.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTermGrace{500};    // from SIGTERM to SIGKILL
constexpr milliseconds kNoticeGrace{500};  // for the others to notice a failure by themselves
constexpr milliseconds kInterruptGrace{200};
// A hang is known within its time-out + 0.5 s: the slack, a check and a wait of the event loop.
constexpr milliseconds kCheckEvery{50};
// A worker enforces the same time-outs itself and says more: it goes first.
constexpr milliseconds kSlack{250};
constexpr milliseconds kUnseenEndPatience{5000};
constexpr milliseconds kStackPatience{500};  // that a rank may take to write its stack
constexpr int64_t kNearlySameTimeNs = 200'000'000;
constexpr int kTailLines = 20;

ProcessEnd end_of(const Worker& worker, std::optional<ProcessState> state) {
  ProcessEnd end;
  end.state = std::move(state);
  if (end.state) end.state->stack = read_stack(stack_path(worker.task.run_dir, worker.who));
  end.who = worker.who;
  end.rank = worker.task.role == "rank" ? worker.task.rank : -1;
  end.time_ns = worker.ended_ns;
  if (WIFSIGNALED(worker.status)) end.signal = WTERMSIG(worker.status);
  if (WIFEXITED(worker.status)) end.exit_code = WEXITSTATUS(worker.status);
  end.by_launcher = worker.by_launcher && worker.status != 0;
  end.past_deadline = worker.past_deadline && worker.status != 0;  // it may still have made it
  return end;
}

}  // namespace

void insert_end(std::vector<ProcessEnd>* ends, ProcessEnd end) {
  auto at = ends->end();
  const bool own_cause = !end.by_launcher && end.exit_code != kExitDone &&
                         end.exit_code != kExitCommError && end.rank >= 0;
  while (own_cause && at != ends->begin() && std::prev(at)->exit_code == kExitCommError &&
         std::prev(at)->time_ns > end.time_ns - kNearlySameTimeNs)
    --at;
  ends->insert(at, std::move(end));
  for (size_t i = 0; i < ends->size(); ++i) (*ends)[i].order = static_cast<int64_t>(i);
}

int64_t ProcessRun::process_count(const RunPlan& plan) {
  return plan.scenario.world_size + static_cast<int64_t>(plan.goldens.size()) +
         plan.watches_states();
}

ProcessRun::ProcessRun(Workers& workers, RunPlan plan, std::string run_dir, RunPart part)
    : workers_(workers),
      part_(std::move(part)),
      store_([this](int64_t client, const Channel::Message& answer) { reply(client, answer); }),
      began_(Clock::now()),
      next_check_(began_ + kCheckEvery) {
  outcome_.plan = std::move(plan);
  outcome_.run_dir = std::move(run_dir);
  outcome_.began_ns = now_ns();
  core_wait_ns_ = workers_.core_wait_ns();
  if (part_.goldens) write_file(plan_path(outcome_.run_dir), to_text(outcome_.plan));
  members_.reserve(static_cast<size_t>(process_count(outcome_.plan)));
  std::vector<int64_t> ranks = part_.ranks;
  for (int64_t rank = 0; part_.ranks.empty() && rank < outcome_.plan.scenario.world_size; ++rank)
    ranks.push_back(rank);
  for (const int64_t rank : ranks) start("rank", "", rank);
  if (part_.goldens)
    for (const std::string& golden : outcome_.plan.goldens) start("golden", golden, -1);
  if (part_.rounding && outcome_.plan.watches_states()) start("rounding", "rounding", -1);
}

void ProcessRun::reply(int64_t client, const Channel::Message& message) {
  // A worker that does not take its answer has ended, or will be past a deadline.
  members_[static_cast<size_t>(client)].worker->control.send(message, -1, milliseconds(0));
}

void ProcessRun::note_failure_elsewhere(Deadline now) { note_failure(now); }

// Before anything is ended: what every rank that is alive does at this moment.
void ProcessRun::note_failure(Deadline now) {
  if (first_bad_ != kNoDeadline) return;
  first_bad_ = now;
  outcome_.failed_ns = now_ns();
  note_core_wait();
  for (size_t i = 0; i < members_.size(); ++i) {
    const Worker& worker = *members_[i].worker;
    if (worker.ended || worker.pid == 0 || worker.task.role != "rank") continue;
    members_[i].state = read_process_state(worker.pid);
    members_[i].state->store_key = store_.awaited_by(static_cast<int64_t>(i));
  }
}

void ProcessRun::start(const std::string& role, const std::string& golden, int64_t rank) {
  const auto client = static_cast<int64_t>(members_.size());
  Member& member = members_.emplace_back();
  member.worker = workers_.start(
      {role, golden, rank, outcome_.run_dir, part_.host_ranks, part_.address},
      outcome_.plan.scenario.threads, [this, client](const Channel::Message& message) {
        if (part_.store)
          part_.store(client, message);
        else
          store_.handle(client, message);
      });
}

bool ProcessRun::over() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.noted; });
}

bool ProcessRun::ranks_over() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) {
    return m.worker->task.role != "rank" || (m.noted && m.worker->status == 0);
  });
}

void ProcessRun::advance(Deadline now) {
  note_ends(now);
  if (over()) return;
  if (first_bad_ != kNoDeadline && now >= first_bad_ + kNoticeGrace)
    for (Member& member : members_) end_with_stack(member, now);
  end_those_asked(now);
  if (now < next_check_) return;
  next_check_ = now + kCheckEvery;
  check_deadlines(now);
}

void ProcessRun::note_ends(Deadline now) {
  std::vector<size_t> fresh;
  for (size_t i = 0; i < members_.size(); ++i)
    if (members_[i].worker->ended && !members_[i].noted) fresh.push_back(i);
  std::stable_sort(fresh.begin(), fresh.end(), [&](size_t a, size_t b) {
    return members_[a].worker->ended_ns < members_[b].worker->ended_ns;
  });
  for (const size_t i : fresh) {
    Member& member = members_[i];
    member.noted = true;
    store_.leave(static_cast<int64_t>(i));
    CpuQuota::forget(member.worker->pid);
    note_golden(member);
    if (!ended_well(member)) note_failure(now);
    insert_end(&outcome_.ends, end_of(*member.worker, std::move(member.state)));
  }
}

// A rank that exits with code 0 before it has done all is as bad as one that says so.
bool ProcessRun::ended_well(const Member& member) const {
  const Worker& worker = *member.worker;
  if (worker.status != 0 || worker.task.role != "rank") return worker.status == 0;
  const auto pulse = read_pulse(records_path(outcome_.run_dir, worker.task.rank));
  return pulse && pulse->newest_kind == EventKind::finished;
}

// Before it stands in ends_: only what ended before anything else did is a problem of its own.
void ProcessRun::note_golden(const Member& member) {
  const Worker& worker = *member.worker;
  if (worker.status == 0 || !outcome_.golden_problem.empty()) return;
  if (worker.lost_zygote) {
    outcome_.golden_problem = "lockstep-zygote has ended, and all of its workers with it";
    return;
  }
  const bool first =
      worker.past_deadline ? member.first_late : first_bad_ == kNoDeadline && !worker.by_launcher;
  if (worker.task.role == "rank" || !first || outcome_.interrupted) return;
  const std::string line = log_tail(log_path(outcome_.run_dir, worker.who), 1);
  outcome_.golden_problem =
      worker.past_deadline ? fmt::format("{} was still running at the run's deadline", worker.who)
                           : fmt::format("{} {}{}{}", worker.who, describe_end(worker.status),
                                         line.empty() ? "" : ": ", line);
}

void ProcessRun::check_deadlines(Deadline now) {
  const milliseconds run(outcome_.plan.scenario.timeouts.run_ms);
  Deadline first_start = kNoDeadline;
  for (Member& member : members_) {
    if (member.started == kNoDeadline && member.worker->pid != 0)
      member.started = member.changed = now;
    first_start = std::min(first_start, member.started);
  }
  // A zygote needs time to load; one that never starts anything is late as well.
  const bool late = now > (first_start == kNoDeadline ? began_ : first_start) + run + kSlack;
  const bool ranks_done = ranks_over();
  std::vector<Member*> overdue;
  for (Member& member : members_) {
    const Worker& worker = *member.worker;
    if (worker.ended || worker.by_launcher || worker.past_deadline) continue;
    if (late || (!ranks_done && worker.task.role == "rank" && is_late(member, now)))
      overdue.push_back(&member);
  }
  if (overdue.empty() || ends_on_their_way(now)) return;
  for (Member* member : overdue) past_deadline(*member, now);
}

// On a busy machine a deadline may be noticed before the end of a process that was in time: it is
// a zombie then, and its end, which says more, is known as soon as the zygote has a core.
bool ProcessRun::ends_on_their_way(Deadline now) {
  const bool any = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    const Worker& worker = *member.worker;
    return !worker.ended && worker.pid != 0 && read_process_state(worker.pid).state == 'Z';
  });
  if (!any) return false;
  if (unseen_end_ == kNoDeadline) unseen_end_ = now;
  return now < unseen_end_ + kUnseenEndPatience;
}

bool ProcessRun::is_late(Member& member, Deadline now) {
  if (member.started == kNoDeadline) return false;
  const Timeouts& timeouts = outcome_.plan.scenario.timeouts;
  const auto pulse = read_pulse(records_path(outcome_.run_dir, member.worker->task.rank));
  if (pulse && pulse->appended != member.appended) {
    member.appended = pulse->appended;
    member.changed = std::max(member.changed, Deadline(std::chrono::nanoseconds(pulse->newest_ns)));
  }
  member.joined = member.joined || (pulse && pulse->newest_phase > Phase::rendezvous);
  return member.joined ? now > member.changed + milliseconds(timeouts.step_ms) + kSlack
                       : now > member.started + milliseconds(timeouts.rendezvous_ms) + kSlack;
}

void ProcessRun::past_deadline(Member& member, Deadline now) {
  member.first_late = first_bad_ == kNoDeadline || first_bad_ == now;
  note_failure(now);
  Worker& worker = *member.worker;
  worker.past_deadline = true;
  if (worker.pid != 0)
    append_to_file(log_path(outcome_.run_dir, worker.who), describe_process(worker.pid));
  end_with_stack(member, now);
}

// A rank says first where it hangs; end_those_asked() ends it once it has, or has had its time.
void ProcessRun::end_with_stack(Member& member, Deadline now) {
  Worker& worker = *member.worker;
  if (worker.ended || worker.by_launcher || member.end_at != kNoDeadline) return;
  if (worker.task.role == "rank" && workers_.ask_for_stack(worker))
    member.end_at = now + kStackPatience;
  else
    workers_.end(worker, kTermGrace);
}

void ProcessRun::end_those_asked(Deadline now) {
  for (Member& member : members_) {
    if (member.end_at == kNoDeadline || member.worker->by_launcher) continue;
    const bool said = !read_stack(stack_path(outcome_.run_dir, member.worker->who)).empty();
    if (said || now >= member.end_at) workers_.end(*member.worker, kTermGrace);
  }
}

void ProcessRun::end_all(milliseconds grace) {
  for (Member& member : members_) workers_.end(*member.worker, grace);
}

void ProcessRun::interrupt() {
  end_all(outcome_.interrupted ? milliseconds(0) : kInterruptGrace);
  outcome_.interrupted = true;
}

// A new zygote counts from its own beginning.
void ProcessRun::note_core_wait() {
  outcome_.core_wait_ns = std::max<int64_t>(0, workers_.core_wait_ns() - core_wait_ns_);
}

RunOutcome ProcessRun::take_outcome() {
  if (first_bad_ == kNoDeadline) note_core_wait();
  const int64_t ranks = outcome_.plan.scenario.world_size;
  const std::string& dir = outcome_.run_dir;
  outcome_.duration_ms = std::chrono::duration_cast<milliseconds>(Clock::now() - began_).count();
  outcome_.ranks = read_all_records(dir, ranks);
  for (const Member& member : members_) {
    const Worker& worker = *member.worker;
    RankRecords records;
    std::string why;
    if (worker.task.role != "rank" &&
        read_records(golden_records_path(dir, worker.task.golden), &records, &why))
      outcome_.goldens.push_back(std::move(records));
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Worker& worker = *members_[static_cast<size_t>(rank)].worker;
    outcome_.evidence.push_back(read_file(evidence_path(dir, rank)));
    outcome_.log_tails.push_back(
        worker.status == 0 ? "" : log_tail(log_path(dir, worker.who), kTailLines));
  }
  write_ends(outcome_, dir, to_text(outcome_.plan));
  return std::move(outcome_);
}

}  // namespace lockstep
