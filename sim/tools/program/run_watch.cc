#include "sim/tools/program/run_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include "scenarios/base/text.h"
#include "sim/launch/process_stat.h"
#include "sim/launch/protocol.h"
#include "sim/launch/run_files.h"
#include "sim/tools/program/deadlock.h"
#include "sim/tools/program/rank_processes.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr auto kEvery = std::chrono::milliseconds(10);
constexpr auto kPulseEvery = std::chrono::milliseconds(100);
// After a failure: for the others to notice it by themselves, and to say so.
constexpr Seconds kNoticeGrace{3}, kNoticeAtMost{20};
constexpr Seconds kStackPatience{0.5};
// Of a deadlock: for so long nobody recorded anything, or computed more than that share of the
// time.
constexpr Seconds kIdle{5}, kIdleAgain{2};
constexpr double kIdleShare = 0.02;
constexpr int kTailLines = 20;
constexpr int64_t kMostSaid = 300;

class Watcher {
 public:
  Watcher(const ProgramLaunch& launch, const ProgramWatch& watch, Signals* signals)
      : launch_(launch), watch_(watch), signals_(signals), states_(launch.world) {
    pulses_.resize(static_cast<size_t>(launch.world));
  }

  ProgramRun run() {
    if (launch_.zygotes != nullptr) launch_.zygotes->wait(Clock::now() + patience(), *signals_);
    run_.outcome.began_ns = now_ns();
    try {
      processes_.start(launch_);
    } catch (const std::system_error& error) {
      run_.why = run_.end.why = error.what();
      return std::move(run_);
    }
    began_ = changed_ = Clock::now();
    while (processes_.at_work() && run_.signal == 0) {
      std::this_thread::sleep_for(kEvery);
      note_ends();
      run_.signal = signals_->next();
      if (!processes_.at_work() || over()) break;
    }
    note_ends();
    note_rest();
    if (!processes_.why_unread().empty()) run_.why = processes_.why_unread();
    note_parent();
    run_.end.signal = run_.signal;
    if (run_.signal != 0) run_.end.why = "interrupted";
    run_.outcome.interrupted = run_.signal != 0;
    run_.outcome.duration_ms = (now_ns() - run_.outcome.began_ns) / 1'000'000;
    return std::move(run_);
  }

 private:
  Clock::duration patience() const {
    return std::chrono::duration_cast<Clock::duration>(Seconds(watch_.limit_s));
  }

  struct Pulse {
    uint64_t appended = 0;
    bool joined = false;
    Clock::time_point changed{};
  };

  void note_ends() {
    for (const size_t i : processes_.look()) {
      const ProgramChild& child = processes_.ranks()[i];
      ProcessEnd end = end_of(child);
      changed_ = Clock::now();
      if (child.by_program) run_.ended_by_program.push_back(child.rank);
      if (end.signal == 0 && end.exit_code < 0) note_unknown(child.rank);
      if (end.signal != 0 || end.exit_code != 0) note_failure();
      if (!child.by_program) note_reason(child, i);
      if (states_[child.rank]) end.state = states_[child.rank];
      add(std::move(end));
    }
  }

  // What a rank that the program has started fails by, the program itself prints when it has learnt
  // of it.
  void note_reason(const ProgramChild& child, size_t place) {
    const bool waits = processes_.parent() != nullptr && child.signal == 0 && child.exit_code > 0;
    if (waits)
      told_by_parent_ = told_by_parent_.value_or(place);
    else if (run_.end.why.empty())
      take_program_end(launch_, child, &run_.end);
  }

  static ProcessEnd end_of(const ProgramChild& child) {
    ProcessEnd end;
    end.who = fmt::format("rank-{}", child.rank);
    end.rank = child.rank;
    end.time_ns = now_ns();
    end.exit_code = child.exit_code;
    end.signal = child.signal;
    end.by_launcher = child.by_program;
    return end;
  }

  void add(ProcessEnd end) {
    end.order = static_cast<int64_t>(run_.outcome.ends.size());
    run_.outcome.ends.push_back(std::move(end));
  }

  void note_unknown(int64_t rank) {
    if (run_.why.empty()) run_.why = fmt::format("how rank {} ended is not known", rank);
  }

  // What every rank that is alive does at this moment, before anything is ended.
  void note_failure() {
    if (run_.outcome.failed_ns != 0) return;
    run_.outcome.failed_ns = now_ns();
    failed_ = Clock::now();
    for (const ProgramChild& child : processes_.ranks())
      if (!child.ended) states_[child.rank] = read_process_state(child.process.pid);
  }

  // Is there nothing more to wait for?
  bool over() {
    const auto now = Clock::now();
    if (now >= next_pulse_) take_pulses(now);
    if (run_.outcome.failed_ns != 0) {
      const bool all_said = now - std::max(failed_, changed_) > kNoticeGrace && !is_to_tell();
      return all_said || now - failed_ > kNoticeAtMost;
    }
    const bool late = now - began_ > Seconds(watch_.limit_s);
    run_.deadlock = !late && deadlocked(now);
    if (!late && !run_.deadlock && !hung(now)) return false;
    late_ = !late || all_silent(now, std::min(watch_.hang_after_s, watch_.limit_s / 2));
    run_.cut_off = !late_;
    if (run_.deadlock) run_.end.why = "its ranks wait for each other: a deadlock";
    if (late && run_.end.why.empty()) run_.end.why = late_text(processes_.ranks(), watch_.limit_s);
    note_failure();
    if (late_) ask_for_stacks();
    return true;
  }

  // All ranks have ended, and why is what the program that started them has yet to print.
  bool is_to_tell() const { return told_by_parent_ && alive().empty(); }

  void take_pulses(Clock::time_point now) {
    next_pulse_ = now + kPulseEvery;
    for (size_t rank = 0; rank < pulses_.size(); ++rank) {
      Pulse& pulse = pulses_[rank];
      if (pulse.changed == Clock::time_point{}) pulse.changed = now;
      const auto read = read_pulse(records_path(launch_.folder, static_cast<int64_t>(rank)));
      if (!read || read->appended == pulse.appended) continue;
      pulse.appended = read->appended;
      pulse.joined = read->newest_phase > Phase::rendezvous;
      pulse.changed = changed_ = now;
    }
  }

  // Of ranks that are alive, if any is. Before they have met, only the limit says that it takes too
  // long: data are prepared there.
  bool all_silent(Clock::time_point now, double seconds) const {
    const bool late = now - began_ > Seconds(watch_.limit_s);
    if (static_cast<int64_t>(processes_.ranks().size()) < launch_.world) return false;
    if (alive().empty()) return false;  // the program that has started them is still at work
    for (const ProgramChild& child : processes_.ranks()) {
      const Pulse& pulse = pulses_[static_cast<size_t>(child.rank)];
      if (child.ended) continue;
      if (!pulse.joined && !late) return false;
      if (now - pulse.changed < Seconds(seconds)) return false;
    }
    return true;
  }

  // What was read after the pulses may tell of who has gone on since: silence is looked at again.
  bool hung(Clock::time_point now) {
    if (!all_silent(now, watch_.hang_after_s) || (in_first_step() && compute(now))) return false;
    take_pulses(Clock::now());
    return all_silent(Clock::now(), watch_.hang_after_s);
  }

  // Reads all records: asked where all are silent.
  bool in_first_step() const {
    for (const RankRecords& rank : read_all_records(launch_.folder, launch_.world))
      if (!rank.events.empty() && rank.events.back().step > 1) return false;
    return true;
  }

  // Does any rank, or a process that it started? Compiling a model takes long, and leaves no sign.
  // Until two looks have been taken that is not known, and they may.
  bool compute(Clock::time_point now) {
    if (now - computed_at_ < kIdleAgain) return true;
    double all = 0;
    for (const ProgramChild& child : processes_.ranks())
      if (!child.ended) all += group_cpu_seconds(::getpgid(child.process.pid));
    const bool known = now - computed_at_ < 2 * kIdleAgain;
    const double share = (all - computed_) / Seconds(now - computed_at_).count();
    computed_ = all;
    computed_at_ = now;
    return !known || share > kIdleShare;
  }

  // Is it certain that nobody will ever go on? Looked at now and then while all ranks are silent.
  bool deadlocked(Clock::time_point now) {
    if (now - changed_ < kPulseEvery * 5) {
      idle_.clear();
      return false;
    }
    if (idle_.empty()) begin_idle(now);
    if (now < next_look_) return false;
    if (!all_idle(now)) {
      begin_idle(now);
      return false;
    }
    next_look_ = now + std::chrono::duration_cast<Clock::duration>(kIdleAgain);
    return recorded_deadlock() && all_stand_in_torch();
  }

  void begin_idle(Clock::time_point now) {
    idle_.clear();
    for (const ProgramChild& child : processes_.ranks())
      idle_.push_back(read_process_stat(child.process.pid).cpu_seconds);
    idle_since_ = now;
    next_look_ = now + std::chrono::duration_cast<Clock::duration>(kIdle);
  }

  bool all_idle(Clock::time_point now) const {
    const std::vector<ProgramChild>& ranks = processes_.ranks();
    const double most = kIdleShare * Seconds(now - idle_since_).count();
    if (static_cast<int64_t>(ranks.size()) < launch_.world || ranks.size() != idle_.size())
      return false;
    if (alive().empty()) return false;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].ended) continue;
      if (!pulses_[static_cast<size_t>(ranks[i].rank)].joined) return false;
      const ProcessStat stat = read_process_stat(ranks[i].process.pid);
      if (stat.state != 'S') return false;  // ready, stopped
      if (stat.cpu_seconds - idle_[i] > most) return false;
    }
    return true;
  }

  std::vector<int64_t> alive() const {
    std::vector<int64_t> ranks;
    for (const ProgramChild& child : processes_.ranks())
      if (!child.ended) ranks.push_back(child.rank);
    return ranks;
  }

  bool recorded_deadlock() const {
    ProgramRun run;
    read_ranks(launch_, 0, &run);
    return nobody_can_go_on(run, alive());
  }

  bool all_stand_in_torch() {
    const std::vector<int64_t> ranks = alive();
    for (const ProgramChild& child : processes_.ranks())
      if (!child.ended) states_[child.rank] = read_process_state(child.process.pid);
    ask_for_stacks();
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int64_t rank) { return stands_in_torch(launch_.folder, rank); });
  }

  // Python writes its frames from a signal handler, whatever the thread waits for.
  void ask_for_stacks() {
    bool asked = false;
    for (const ProgramChild& child : processes_.ranks()) {
      const int64_t rank = child.rank;
      if (child.ended || !states_[rank] || is_stopped(*states_[rank])) continue;
      if (!catches_signal(child.process.pid, stack_signal())) continue;
      send_signal(child.process.pidfd, stack_signal());
      asked = true;
    }
    if (asked) std::this_thread::sleep_for(kStackPatience);
  }

  // Those that are ended with this object.
  void note_rest() {
    for (const ProgramChild& child : processes_.ranks()) {
      if (child.ended) continue;
      ProcessEnd end = end_of(child);
      end.exit_code = -1;
      end.signal = SIGKILL;
      end.by_launcher = true;
      end.past_deadline = late_;
      end.state = states_[child.rank];
      add(std::move(end));
    }
  }

  // Of one that starts its ranks itself: it may fail where none of them does.
  void note_parent() {
    const ProgramChild* parent = processes_.parent();
    if (parent != nullptr && parent->ended && run_.end.why.empty())
      take_program_end(launch_, *parent, &run_.end);
    if (told_by_parent_ && run_.end.why.empty())
      take_program_end(launch_, processes_.ranks()[*told_by_parent_], &run_.end);
    if (parent == nullptr || !parent->ended || run_.outcome.failed_ns != 0 || !run_.why.empty())
      return;
    if (parent->signal == 0 && parent->exit_code == 0) return;
    const bool exited = parent->signal == 0;
    run_.why = fmt::format(
        "the program that starts the ranks ended with {} {}, and no rank had failed: {}",
        exited ? "exit code" : "signal", exited ? parent->exit_code : parent->signal,
        printable(log_tail(program_log(launch_.folder, parent->rank), 1)).substr(0, kMostSaid));
  }

  struct States {
    explicit States(int64_t world) : all(static_cast<size_t>(world)) {}
    std::optional<ProcessState>& operator[](int64_t rank) { return all[static_cast<size_t>(rank)]; }
    std::vector<std::optional<ProcessState>> all;
  };

  const ProgramLaunch& launch_;
  const ProgramWatch& watch_;
  Signals* signals_;
  RankProcesses processes_;
  ProgramRun run_;
  States states_;
  std::vector<Pulse> pulses_;  // by rank
  Clock::time_point began_{}, changed_{}, failed_{}, next_pulse_{};
  bool late_ = false;                     // it hangs
  std::optional<size_t> told_by_parent_;  // the place of the rank that failed first
  std::vector<double> idle_;              // what each rank had computed when all had become silent
  Clock::time_point idle_since_{}, next_look_{};
  double computed_ = 0;  // by all groups of processes, at the last look
  Clock::time_point computed_at_{};
};

// Codes of our own workers mean what they do not mean here.
void translate_exit(const RankError& error, ProcessEnd* end) {
  if (end->by_launcher || end->signal != 0 || end->exit_code == 0) return;
  if (error.kind == ErrorKind::exception && !error.text.empty())
    end->exit_code = kExitException;
  else if (error.kind != ErrorKind::none)
    end->exit_code = kExitCommError;
}

void take_rank(const ProgramLaunch& launch, int64_t rank, ProgramRun* run) {
  ProgramRankFacts& found = run->ranks.emplace_back();
  Evidence evidence;
  const InputErrors errors = read_rank_facts(launch.folder, rank, &found, &evidence.error);
  if (!errors.empty() && run->why.empty()) run->why = to_text(errors[0]);
  for (ProcessEnd& end : run->outcome.ends) {
    if (end.rank != rank) continue;
    // The program's own code, were it that of one of ours, is no sign that others failed before.
    if (evidence.error.kind == ErrorKind::none && end.exit_code == kExitCommError)
      evidence.error.kind = ErrorKind::exception;
    translate_exit(evidence.error, &end);
    if (end.state) end.state->stack = found.stack;
  }
  run->outcome.evidence.push_back(to_json_text(evidence));
  run->outcome.log_tails.push_back(
      log_tail(program_log(launch.folder, launch.start.spawns ? 0 : rank), kTailLines));
}

// What the judge asks of a plan.
void take_plan(const ProgramLaunch& launch, ProgramRun* run) {
  Scenario& scenario = run->outcome.plan.scenario;
  scenario.name = launch.start.command[0];
  scenario.world_size = scenario.batch_size = launch.world;
  scenario.reducer.kind = "c10d";
  scenario.communicator.kind = "gloo";
  int64_t timeout_ms = 1'800'000;  // PyTorch's over Gloo
  for (const ProgramRankFacts& rank : run->ranks)
    if (rank.timeout_ms >= 0) timeout_ms = rank.timeout_ms;
  scenario.timeouts.collective_ms = scenario.timeouts.construction_ms = timeout_ms;
  // As many as any rank has begun: what the loop does before a forward begins none.
  for (const RankRecords& records : run->outcome.ranks)
    for (const Event& event : records.events) {
      const auto phase = static_cast<Phase>(event.phase);
      if (phase >= Phase::forward && phase <= Phase::optimizer)
        scenario.steps = std::max<int64_t>(scenario.steps, event.step);
    }
}

}  // namespace

void read_ranks(const ProgramLaunch& launch, size_t faults, ProgramRun* run) {
  for (int64_t rank = 0; rank < launch.world; ++rank) take_rank(launch, rank, run);
  run->outcome.ranks = read_all_records(launch.folder, launch.world);
  for (const ProgramRankFacts& rank : run->ranks) run->outcome.groups.push_back(rank.groups);
  run->outcome.own_bytes = true;
  take_plan(launch, run);
  std::error_code error;
  run->on_cpu = std::filesystem::exists(launch.folder + "/on_cpu", error);
  run->advice = gpu_advice(launch.folder);
  run->acted.resize(faults);
  for (size_t i = 0; i < faults; ++i)
    for (int64_t rank = 0; rank < launch.world; ++rank)
      if (std::filesystem::exists(fmt::format("{}/fired-{}-{}", launch.folder, rank, i), error))
        run->acted[i].push_back(rank);
}

ProgramRun watch_program(const ProgramLaunch& launch, const ProgramWatch& watch, size_t faults,
                         Signals* signals) {
  ProgramRun run = Watcher(launch, watch, signals).run();
  if (run.signal == 0 && !run.end.why.empty() && !starts_ranks_itself(launch) &&
      begins_anew(launch))
    run = Watcher(launch, watch, signals).run();
  if (run.signal == 0 && starts_ranks_itself(launch)) {
    run.end = ProgramEnd();
    run.end.why = kStartsRanksItself;
    if (run.why.empty()) run.why = kStartsRanksItself;
  }
  read_ranks(launch, faults, &run);
  return run;
}

}  // namespace lockstep
