#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/schema.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/registered_names.h"
#include "sim/cli/select.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/launch/event_loop.h"
#include "sim/plan/plan.h"
#include "sim/plan/plans.h"
#include "sim/report/document.h"
#include "sim/report/moving_line.h"
#include "sim/tools/explore/report.h"
#include "sim/tools/explore/result.h"
#include "sim/tools/explore/shrink.h"
#include "sim/tools/tools.h"

extern char** environ;
namespace lockstep {
namespace {

// Schedules of scenarios whose ranks are threads of one process, one running at a time.
struct ExploreOptions {
  Selection selection;
  std::optional<Shard> shard;
  ExploreSpec spec;  // its seed is the scenario's
  std::string json;
  std::string color = "auto";
  bool quiet = false;
};

using Json = nlohmann::ordered_json;

constexpr int kSilenceMs = 60'000;

// The worker and what it prints.
class Process {
 public:
  // Its standard error is ours.
  Process(const std::string& program, const std::string& file) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
      problem_ = strerror(errno);
      return;
    }
    out_.reset(fds[0]);
    const UniqueFd theirs(fds[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    std::string words[] = {program, "--explore", file};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      problem_ = strerror(error);
      return;
    }
    pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Process() {
    if (pid_ > 0) reap();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& problem() const { return problem_; }
  int out() const { return out_.get(); }
  void signal(int number) const {
    syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
  }
  std::string reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                               : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  }

 private:
  UniqueFd out_, pidfd_;
  pid_t pid_ = 0;
  std::string problem_;
};

// Lines of a worker until its last one.
class Conversation {
 public:
  Conversation(Process& process, Signals& signals, const std::function<void(int64_t)>& progress)
      : process_(process), signals_(signals), progress_(progress) {}

  ExploreResult listen() {
    for (;;) {
      pollfd ready[] = {{process_.out(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      const int n = poll(ready, 2, kSilenceMs);
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) {
        process_.signal(SIGKILL);
        return broken(
            fmt::format("no schedule ended within {} s: a rank waits where the scheduler "
                        "does not see it, or its step is long",
                        kSilenceMs / 1000));
      }
      if (ready[1].revents != 0) pass_on();
      if (ready[0].revents != 0 && !read_some()) return ended();
    }
  }

 private:
  void pass_on() {
    const int number = signals_.next();
    if (number == 0) return;
    signal_ = number;
    process_.signal(number);
  }

  bool read_some() {
    char buffer[4096];
    const ssize_t got = read(process_.out(), buffer, sizeof buffer);
    if (got <= 0) return got < 0 && errno == EINTR;
    text_.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      take(text_.substr(0, end));
    return true;
  }

  void take(const std::string& line) {
    const Json json = json_or_discarded(line);
    if (!json.is_object()) return;
    if (json.contains("explored") && json["explored"].is_number_integer())
      progress_(json["explored"].get<int64_t>());
    if (json.contains("result")) result_ = explore_result_from_json(json["result"]);
  }

  ExploreResult ended() {
    const std::string how = process_.reap();
    if (!result_) return broken("lockstep-worker " + how);
    return std::move(*result_);
  }
  ExploreResult broken(std::string why) const {
    ExploreResult result;
    result.signal = signal_;
    if (signal_ == 0) result.broken = std::move(why);
    return result;
  }

  Process& process_;
  Signals& signals_;
  const std::function<void(int64_t)>& progress_;
  std::string text_;
  std::optional<ExploreResult> result_;
  int signal_ = 0;
};

ExploreResult explore_in_worker(const std::string& worker, const RunPlan& plan,
                                const ExploreSpec& spec, Signals& signals,
                                const std::function<void(int64_t)>& progress) {
  ExploreResult result;
  const Json given = {{"plan", as_json(plan)}, {"spec", as_json(spec)}};
  const auto file = hand_over(given.dump(), &result.broken);
  if (!file) return result;
  Process process(worker, *file);
  result.broken = process.problem();
  if (!result.broken.empty()) return result;
  return Conversation(process, signals, progress).listen();
}

std::string progress_text(const std::string& name, int64_t explored, int64_t schedules,
                          int64_t elapsed_ns) {
  std::string text = fmt::format("{} {}/{}  {} %", name, grouped(explored), grouped(schedules),
                                 100 * explored / schedules);
  if (explored > 0)
    text +=
        fmt::format("  {} s left", elapsed_ns / explored * (schedules - explored) / 1'000'000'000);
  return text;
}

struct ToExplore {
  RunPlan plan;
  std::vector<std::string> further_words;  // of its file
};

std::string command_again(const ExploreOptions& options, const ToExplore& one) {
  const RunPlan& plan = one.plan;
  std::string text = as_called(again_command(plan.file, options.selection.sets, plan.set,
                                             plan.scenario.seed, one.further_words, "explore"));
  if (options.spec.exhaustive)
    text += fmt::format(" --exhaustive --schedules {}", options.spec.schedules);
  if (options.spec.preemptions) text += fmt::format(" --preemptions {}", *options.spec.preemptions);
  return text;
}

bool expects_finding(const Scenario& scenario) {
  for (const Expectation& expected : scenario.expect)
    if (expected.verdict == Verdict::fail || expected.outcome == RunEnding::failed) return true;
  return false;
}

Expected<std::vector<ToExplore>> plans_to_explore(const Selection& selection,
                                                  const std::optional<Shard>& shard) {
  auto files = select(selection);
  if (!files) return files.errors();
  if (shard) keep_shard(*shard, &files.value());
  std::vector<ToExplore> plans;
  InputErrors errors;
  for (const SelectedFile& file : files.value())
    for (const RunPlan& plan : file.plans) {
      auto explored = explorable(plan);
      if (explored)
        plans.push_back({std::move(explored.value()), file.further_words});
      else
        errors.insert(errors.end(), explored.errors().begin(), explored.errors().end());
    }
  if (!errors.empty()) return errors;
  return plans;
}

ExploredScenario explore_one(const ExploreOptions& options, const std::string& worker,
                             const ToExplore& explored, Signals& signals) {
  const RunPlan& plan = explored.plan;
  const Scenario& scenario = plan.scenario;
  ExploreSpec spec = options.spec;
  spec.seed = scenario.seed;
  ExploredScenario one;
  one.name = scenario.name;
  one.label = label_of(plan.set);
  one.file = plan.file;
  one.reducer = scenario.reducer.kind;
  one.again = command_again(options, explored);
  one.expects_finding = expects_finding(scenario);
  MovingLine line(!options.quiet && can_move(STDERR_FILENO));
  const int64_t start_ns = now_ns();
  one.result = explore_in_worker(worker, plan, spec, signals, [&](int64_t done) {
    line.show(progress_text(one.name, done, spec.schedules, now_ns() - start_ns));
  });
  return one;
}

int report_exploration(const ExploreOptions& options, const ExploreDocument& document) {
  const int code = write_output("--json", options.json, document.exit_code,
                                [&] { return to_text(as_json(document)); });
  const Style style = style_of(options.color, STDOUT_FILENO);
  return print_result(options.quiet ? explore_answer(document) : explore_text(document, style),
                      code);
}

int explore(const ExploreOptions& options) {
  InputErrors errors;
  check_output("--json", options.json, &errors);
  if (!errors.empty()) return bad_input(errors);
  const auto plans = plans_to_explore(options.selection, options.shard);
  if (!plans) return bad_input(plans.errors(), options.json);
  if (plans.value().empty())
    return nothing_selected(
        options.shard ? "this shard has no run"
                      : fmt::format("no run contains \"{}\"", printable(options.selection.filter)),
        "explore", options.json, {.junit = "", .annotations = "none"});
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), options.json);
  std::vector<const RunPlan*> asked;
  for (const ToExplore& one : plans.value()) asked.push_back(&one.plan);
  const InputErrors unknown = unknown_names(worker.value(), asked);
  if (!unknown.empty()) return bad_input(unknown, options.json);
  ExploreDocument document;
  document.spec = options.spec;
  document.spec.seed = plans.value().front().plan.scenario.seed;
  document.machine = this_machine();
  const int64_t start_ns = now_ns();
  {
    Signals signals;
    for (const ToExplore& one : plans.value()) {
      document.scenarios.push_back(explore_one(options, worker.value(), one, signals));
      if (document.scenarios.back().result.signal != 0) break;
    }
  }
  document.duration_ms = (now_ns() - start_ns) / 1'000'000;
  for (const ExploredScenario& one : document.scenarios)
    if (auto libraries = libraries_of(one.result.libraries)) document.libraries = *libraries;
  conclude(&document);
  return report_exploration(options, document);
}

void add_schedules(CLI::App* verb, ExploreSpec* spec) {
  const char* group = "Which schedules";
  verb->add_option("--schedules", spec->schedules,
                   "Maximum number of schedules per scenario (10000)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{1'000'000'000}))
      ->group(group);
  verb->add_option("--preemptions", spec->preemptions,
                   "Interruptions of ranks that could go on (0 to 3, drawn; exhaustive: 2)")
      ->option_text("D")
      ->check(between(int64_t{0}, int64_t{64}))
      ->group(group);
  auto* exhaustive = verb->add_flag("--exhaustive", spec->exhaustive,
                                    "Every schedule within these bounds, depth first")
                         ->group(group);
  verb->add_option("--replay", spec->replay, "Only the schedule of this seed, a hundred times")
      ->option_text("SEED")
      ->check(between(uint64_t{1}, uint64_t{1} << 53))
      ->excludes(exhaustive)
      ->group(group);
  verb->add_flag("--all", spec->all, "Go on after a finding; report the first of each kind")
      ->group(group);
}

void add_explore(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ExploreOptions>();
  CLI::App* verb = app.add_subcommand(
      "explore", "Run reducers under thousands of schedules; find races, deadlocks, mismatches.");
  add_selection(verb, &options->selection, true);
  add_schedules(verb, &options->spec);
  add_shard(verb, &options->shard);
  verb->add_option("--json", options->json,
                   "Write the result as JSON (see lockstep schema --explore)")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--color", options->color, "When to colour verdicts")
      ->option_text("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("Output");
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->add_option("--jobs", options->spec.jobs, "Groups of ranks side by side (as processors)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{256}))
      ->group("How");
  verb->footer(footer(R"(  lockstep explore scenarios/explore/toy.json --schedules 30000
  lockstep explore scenarios/explore/skip_wait.json --json skip_wait.json
  lockstep explore scenarios/equivalence/toy_model.json --set /world_size=2 --set /steps=1 \
    --exhaustive --preemptions 1
)"));
  verb->callback([=] { *action = [=] { return explore(*options); }; });
}

}  // namespace

Tool explore_tool() {
  const char* common = " --color --filter --json --preemptions --quiet --shard ";
  return {.verb = "explore",
          .add = add_explore,
          .forms = {{"with --replay", "--replay", {"--replay", kSelectionOptions, common}},
                    {"with --exhaustive",
                     "--exhaustive",
                     {" --all --exhaustive --schedules ", kSelectionOptions, common}},
                    {"of drawn schedules",
                     "",
                     {" --all --jobs --schedules ", kSelectionOptions, common}}},
          .schema = {"--explore", "Of what explore --json writes", explore_schema_text}};
}

}  // namespace lockstep
