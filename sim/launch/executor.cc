#include "sim/launch/executor.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <list>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/limits.h"
#include "sim/launch/process_run.h"
#include "sim/launch/process_stat.h"
#include "sim/launch/protocol.h"
#include "sim/launch/run_files.h"
#include "sim/launch/thread_hosts.h"
#include "sim/launch/workers.h"
#include "sim/record/core_wait.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait{50};
constexpr int64_t kBytesPerProcess = 120 << 20;

// Processes that fit into four fifths of the memory that is free now.
int64_t processes_that_fit(int64_t memory_bytes) {
  return std::max<int64_t>(1, memory_bytes / 5 * 4 / kBytesPerProcess);
}

// A process takes two descriptors of the launcher, and a third for a moment.
int64_t processes_within_descriptors() {
  constexpr int64_t kOthers = 64, kPerProcess = 3;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > (1 << 20)) return 1 << 16;
  return std::max<int64_t>(1, (static_cast<int64_t>(limit.rlim_cur) - kOthers) / kPerProcess);
}

class Execution {
 public:
  Execution(const std::vector<RunPlan>& plans, const ExecutorOptions& options,
            const std::function<bool(size_t, RunOutcome)>& done);
  int run();

 private:
  struct Running {
    size_t index;
    std::unique_ptr<ProcessRun> run;
  };
  bool over() const { return queue_.empty() && running_.empty() && hosts_.over(); }
  void start_what_fits();
  void start_next();
  void advance();
  bool deliver(size_t index, RunOutcome outcome);
  void end_all();
  void on_signal();

  const std::vector<RunPlan>& plans_;
  const ExecutorOptions& options_;
  const std::function<bool(size_t, RunOutcome)>& done_;
  Signals signals_;
  EventLoop loop_;
  Workers workers_;
  ThreadHosts hosts_;
  std::deque<size_t> queue_;  // runs of processes
  std::list<Running> running_;
  int64_t processes_ = 0;  // of the running ones
  const Capacity capacity_;
  size_t jobs_;
  int64_t processes_max_;
  bool enough_ = false;
  int interrupted_by_ = 0;
};

Execution::Execution(const std::vector<RunPlan>& plans, const ExecutorOptions& options,
                     const std::function<bool(size_t, RunOutcome)>& done)
    : plans_(plans),
      options_(options),
      done_(done),
      workers_(loop_, {options.worker_program, options.out_dir, options.fresh_processes}),
      hosts_(
          workers_, plans, options.out_dir,
          [this](size_t index, RunOutcome outcome) { return deliver(index, std::move(outcome)); }),
      capacity_(this_capacity()),
      // One more than cores: while one run waits for its slowest process, another can go on.
      jobs_(static_cast<size_t>(options.jobs > 0 ? options.jobs : capacity_.cores + 1)),
      processes_max_(
          std::min(processes_that_fit(capacity_.memory_bytes), processes_within_descriptors())) {
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].threads)
      hosts_.add(i);
    else
      queue_.push_back(i);
  }
  loop_.watch(signals_.fd(), [this] { on_signal(); });
}

int Execution::run() try {
  while (!over()) {
    if (interrupted_by_ == 0 && !enough_) start_what_fits();
    const bool before = enough_;
    loop_.wait(kWait);
    workers_.tick(Clock::now());
    workers_.check();
    advance();
    if (enough_ && !before) end_all();
  }
  return interrupted_by_;
} catch (const std::exception&) {
  on_signal();  // what it ended does not break the execution down
  if (interrupted_by_ == 0) throw;
  return interrupted_by_;
}

void Execution::start_what_fits() {
  while (!queue_.empty() && running_.size() < jobs_) {
    const int64_t needed = ProcessRun::process_count(plans_[queue_.front()]);
    if (!running_.empty() && processes_ + needed > processes_max_) return;
    start_next();
  }
  if (queue_.empty() && !hosts_.empty() && !hosts_.started() && running_.size() < jobs_)
    hosts_.start(static_cast<size_t>(options_.jobs > 0 ? options_.jobs : capacity_.cores));
}

void Execution::start_next() {
  const size_t index = queue_.front();
  queue_.pop_front();
  const std::string dir = run_dir_of(options_.out_dir, index);
  make_dir(dir);
  processes_ += ProcessRun::process_count(plans_[index]);
  running_.push_back({index, std::make_unique<ProcessRun>(workers_, plans_[index], dir)});
}

void Execution::advance() {
  const Deadline now = Clock::now();
  for (auto it = running_.begin(); it != running_.end();) {
    it->run->advance(now);
    if (!it->run->over()) {
      ++it;
      continue;
    }
    RunOutcome outcome = it->run->take_outcome();
    const std::string dir = outcome.run_dir;
    processes_ -= ProcessRun::process_count(plans_[it->index]);
    const size_t index = it->index;
    it = running_.erase(it);
    if (!deliver(index, std::move(outcome))) remove_dir(dir);
  }
  hosts_.advance(now);
}

bool Execution::deliver(size_t index, RunOutcome outcome) {
  if (enough_ && outcome.interrupted) return false;
  const bool keep = done_(index, std::move(outcome)) || options_.keep_all;
  if (!enough_ && options_.enough && options_.enough()) enough_ = true;
  return keep;
}

void Execution::end_all() {
  queue_.clear();
  for (Running& running : running_) running.run->interrupt();
  hosts_.interrupt();
}

void Execution::on_signal() {
  while (const int number = signals_.next()) {
    if (interrupted_by_ == 0) interrupted_by_ = number;
    end_all();
  }
}

void check_options(const ExecutorOptions& options) {
  LOCKSTEP_CHECK(options.worker_program.starts_with('/') && options.out_dir.starts_with('/'),
                 "paths for the launcher must be absolute");
  if (::access(options.worker_program.c_str(), X_OK) != 0)
    throw_errno(errno, "cannot run " + options.worker_program);
  if (::access(options.out_dir.c_str(), W_OK | X_OK) != 0)
    throw_errno(errno, "cannot write to the run directory " + options.out_dir);
}

}  // namespace

int execute(const std::vector<RunPlan>& plans, const ExecutorOptions& options,
            const std::function<bool(size_t index, RunOutcome outcome)>& done) {
  check_options(options);
  return Execution(plans, options, done).run();
}

namespace {

// In which a rank may be found to wait.
constexpr std::array<std::pair<long, const char*>, 16> kCalls = {{
    {SYS_futex, "futex"},
    {SYS_ppoll, "ppoll"},
    {SYS_epoll_pwait, "epoll_wait"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_read, "read"},
    {SYS_readv, "readv"},
    {SYS_write, "write"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_connect, "connect"},
    {SYS_pselect6, "select"},
    {SYS_rt_sigsuspend, "sigsuspend"},
    {SYS_wait4, "wait"},
    {SYS_fsync, "fsync"},
}};

std::string call_name(long number) {
#ifdef SYS_poll  // absent on newer architectures
  if (number == SYS_poll) return "poll";
  if (number == SYS_epoll_wait) return "epoll_wait";
  if (number == SYS_pause) return "pause";
#endif
  for (const auto& [known, name] : kCalls)
    if (known == number) return name;
  return fmt::format("call {}", number);
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

// "/lib/libc.so.6(+0x3bfd0) [0x7f..]" or "worker(_ZN8lockstep4Pass4stepEl+0x5f) [0x55..]".
std::string frame_of(const std::string& line) {
  const size_t open = line.rfind('('), close = line.rfind(')');
  if (open == line.npos || close == line.npos || close < open) return line;
  const std::string inside = line.substr(open + 1, close - open - 1);
  const size_t plus = inside.rfind('+');
  if (plus != inside.npos && plus > 0)
    return demangled(inside.substr(0, plus)) + inside.substr(plus);
  const size_t slash = line.rfind('/', open);
  const size_t begin = slash == line.npos ? 0 : slash + 1;
  return line.substr(begin, open - begin) + inside;
}

}  // namespace

ProcessState read_process_state(pid_t pid) {
  const std::string proc = fmt::format("/proc/{}/", pid);
  ProcessState state;
  state.state = read_process_stat(pid).state;
  const std::string call = read_file(proc + "syscall");  // "running", "-1 ...", "202 0x..."
  char* end = nullptr;
  const long number = std::strtol(call.c_str(), &end, 10);
  if (end != call.c_str() && number >= 0) state.syscall = call_name(number);
  state.wchan = read_file(proc + "wchan");
  if (state.wchan == "0") state.wchan.clear();
  state.core_wait_ns = core_wait_of_main_thread(pid);
  return state;
}

bool is_stopped(const ProcessState& state) { return state.state == 'T' || state.state == 't'; }

bool catches_signal(pid_t pid, int signal) {
  std::istringstream status(read_file(fmt::format("/proc/{}/status", pid)));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:"))
      return (std::strtoull(line.c_str() + 7, nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

std::vector<std::string> read_stack(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;  // a handler writes at most some kB
  std::istringstream text(read_foreign_file(path, kMostBytes).value_or(""));
  std::vector<std::string> frames;
  for (std::string line; std::getline(text, line);) {
    if (line == kStackEnd) return frames;
    frames.push_back(frame_of(line));
  }
  return {};
}

}  // namespace lockstep
