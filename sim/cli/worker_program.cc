#include "sim/cli/worker_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "scenarios/base/clock.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/select.h"
#include "sim/cli/verbs.h"
#include "sim/plan/plans.h"

extern char** environ;
namespace lockstep {
namespace {

constexpr size_t kOutputMax = 1 << 20;

std::string own_name;  // empty: lockstep, whose worker is another program

std::filesystem::path own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

pid_t spawn(const std::vector<std::string>& command, int out, std::string* why) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  *why = strerror(error);
  return 0;
}

// Everything up to the end of the pipe; false past the deadline.
bool read_all(int fd, Deadline deadline, std::string* text) {
  char buffer[4096];
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    const int n = poll(&ready, 1, static_cast<int>(time_left(deadline).count()));
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return got == 0;
    if (text->size() < kOutputMax) text->append(buffer, static_cast<size_t>(got));
  }
}

// Waits for a child through its pidfd, killing it at the deadline; its status.
int reap(pid_t pid, bool kill_now, Deadline deadline) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd ended{pidfd, POLLIN, 0};
  if (kill_now || poll(&ended, 1, static_cast<int>(time_left(deadline).count())) != 1)
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (pidfd >= 0) close(pidfd);
  return status;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds timeout, std::string* why) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    *why = strerror(errno);
    return std::nullopt;
  }
  const Deadline deadline = deadline_after(timeout);
  const pid_t pid = spawn(command, fds[1], why);
  close(fds[1]);
  std::string text;
  const bool in_time = pid > 0 && read_all(fds[0], deadline, &text);
  close(fds[0]);
  if (pid == 0) return std::nullopt;
  const int status = reap(pid, !in_time, deadline);
  if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  *why = !in_time            ? fmt::format("did not end within {} ms", timeout.count())
         : WIFEXITED(status) ? fmt::format("ended with exit code {}", WEXITSTATUS(status))
                             : fmt::format("was ended by signal {}", WTERMSIG(status));
  return std::nullopt;
}

std::optional<std::string> hand_over(const std::string& text, std::string* why) {
  const int fd = memfd_create("plan", 0);
  const auto size = static_cast<ssize_t>(text.size());
  if (fd >= 0 && write(fd, text.data(), text.size()) == size)
    return fmt::format("/proc/self/fd/{}", fd);
  *why = strerror(errno);
  return std::nullopt;
}

void be_own_worker(const std::string& name) { own_name = name; }

std::string as_called(const std::string& command) {
  const std::string name = "lockstep";
  if (own_name.empty() || !command.starts_with(name + " ")) return command;
  return own_name + command.substr(name.size());
}

Expected<std::string> find_worker() {
  if (!own_name.empty()) return own_program().string();
  std::string path = own_program().parent_path().string() + "/lockstep-worker";
  if (access(path.c_str(), X_OK) == 0) return path;
  return InputError{.file = "",
                    .line = 0,
                    .column = 0,
                    .pointer = "",
                    .message = fmt::format("no program {}: {}", path, strerror(errno)),
                    .allowed = "lockstep-worker beside lockstep (build it with LibTorch)"};
}

int exec_worker(const std::vector<std::string>& arguments) {
  const auto program = find_worker();
  if (!program) return bad_input(program.errors());
  std::vector<char*> argv{const_cast<char*>(program.value().c_str())};
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execv(argv[0], argv.data());
  print_error(fmt::format("lockstep: error: {}: {}\n", program.value(), strerror(errno)));
  return 2;
}

namespace {

FoundDevices ask(const std::string& worker) {
  FoundDevices found;
  std::string why;
  const auto text = output_of({worker, "--devices"}, kWorkerTimeout, &why);
  auto document = json_or_discarded(text.value_or(""));
  if (!document.is_object() || !document.contains("cuda")) {
    found.problem = "lockstep-worker --devices " + (text ? "printed no JSON object" : why);
    found.no_nccl = found.problem;
    return found;
  }
  const auto& cuda = document["cuda"];
  found.count = cuda.value("count", int64_t{0});
  found.problem = cuda.value("problem", "");
  found.name = cuda.value("name", "");
  found.capability = cuda.value("capability", "");
  found.driver = cuda.value("driver", "");
  found.no_nccl = document.value("no_nccl", "");
  return found;
}

std::optional<InputError> problem_of(const RunPlan& plan, const FoundDevices& found) {
  const Scenario& s = plan.scenario;
  InputError error;
  error.file = printable(plan.file);
  if (found.count == 0) {
    error.pointer = "/device";
    error.message = fmt::format("device cuda: {}", found.problem);
    error.allowed = "\"cpu\", or \"auto\", which is the cpu then (lockstep doctor)";
    return error;
  }
  if (s.communicator.kind != "nccl") return std::nullopt;
  error.pointer = "/communicator/kind";
  if (!found.no_nccl.empty()) {
    error.message = fmt::format("communicator nccl: {}", found.no_nccl);
    error.allowed = "gloo or c10d";
    return error;
  }
  if (s.world_size <= found.count) return std::nullopt;
  error.message = fmt::format("communicator nccl wants a device for each rank: {} ranks, {} {}",
                              s.world_size, found.count, plural(found.count, "device"));
  error.allowed = fmt::format("at most {} {}, or gloo or c10d, where ranks may share a device",
                              found.count, plural(found.count, "rank"));
  return error;
}

// `device` for "auto", with everything that the selection has said of the plan.
std::optional<RunPlan> planned_on(const std::string& device, const RunPlan& plan) {
  Scenario scenario = plan.scenario;
  scenario.device = device;
  auto planned = make_plan(scenario);
  if (!planned) return std::nullopt;
  planned.value().set = plan.set;
  planned.value().file = plan.file;
  return std::move(planned.value());
}

// Each reason once for all plans of an invocation.
void say(const std::string& why, bool quiet) {
  static std::set<std::string> said;
  if (!quiet && said.insert(why).second)
    print_error(fmt::format("device auto: the cpu, since {}\n", printable(why)));
}

void choose(const std::string& worker, bool quiet, RunPlan* plan) {
  const FoundDevices& found = found_devices(worker);
  auto on_gpu = found.count > 0 ? planned_on("cuda", *plan) : std::nullopt;
  if (on_gpu) {
    *plan = std::move(*on_gpu);
    return;
  }
  *plan = planned_on("cpu", *plan).value();
  say(found.count > 0 ? fmt::format("{} cannot run on a GPU", plan->scenario.name) : found.problem,
      quiet);
}

// Moves what this machine cannot run out of the file's plans; the first reason.
std::optional<InputError> leave_out(const std::string& worker, bool quiet, SelectedFile* file) {
  std::optional<InputError> first;
  std::vector<RunPlan> left;
  for (RunPlan& plan : file->plans) {
    const auto error = settle_device(worker, quiet, &plan);
    if (!error) {
      left.push_back(std::move(plan));
      continue;
    }
    file->left_out.push_back({plan.scenario.name, plan.file, label_of(plan.set), error->message});
    if (!first) first = error;
  }
  file->plans = std::move(left);
  return first;
}

// Even where all else is quiet: nobody is to take the verdict for one about them.
void say_left_out(const std::vector<SelectedFile>& files) {
  std::map<std::string, int64_t> runs;  // by reason
  for (const SelectedFile& file : files)
    for (const NotRun& run : file.left_out) ++runs[run.why];
  for (const auto& [why, count] : runs)
    print_error(
        fmt::format("left out: {} {}: {}\n", grouped(count), plural(count, "run"), printable(why)));
}

}  // namespace

const FoundDevices& found_devices(const std::string& worker) {
  static const FoundDevices found = ask(worker);
  return found;
}

std::optional<InputError> settle_device(const std::string& worker, bool quiet, RunPlan* plan) {
  if (plan->scenario.device == "auto") choose(worker, quiet, plan);
  if (plan->scenario.device != "cuda") return std::nullopt;
  return problem_of(*plan, found_devices(worker));
}

InputErrors settle_devices(const std::string& worker, bool quiet,
                           std::vector<SelectedFile>* files) {
  InputErrors all, demanded;
  for (SelectedFile& file : *files) {
    const auto error = leave_out(worker, quiet, &file);
    if (!error) continue;
    all.push_back(*error);
    if (!file.in_folder) demanded.push_back(*error);
  }
  if (count_runs(*files) == 0) return all;
  if (demanded.empty() && !all.empty()) say_left_out(*files);
  return demanded;
}

}  // namespace lockstep
