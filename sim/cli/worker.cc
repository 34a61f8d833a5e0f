#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "sim/cli/execution.h"
#include "sim/cli/hosts.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/join/rendezvous.h"
#include "sim/join/site.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/run_files.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

void add_place(CLI::App* worker, const std::shared_ptr<WorkerOptions>& options) {
  const char* group = "Which rank";
  worker
      ->add_option("--launcher", options->launcher,
                   "Launcher whose environment variables are used (auto)")
      ->option_text("NAME")
      ->check(CLI::IsMember({"auto", "torchrun", "mpi", "slurm", "none"}))
      ->group(group);
  const auto number = [&](const char* name, std::optional<int64_t>* value, int64_t least,
                          const char* what) {
    worker->add_option(name, *value, what)
        ->option_text("N")
        ->check(between(least, int64_t{4096}))
        ->group(group);
  };
  number("--nodes", &options->nodes, 1, "Nodes, with one process like this one on each");
  number("--node-rank", &options->node_rank, 0, "Which of them this is (SLURM_NODEID)");
  number("--ranks-per-node", &options->ranks_per_node, 1, "Ranks that this process starts (1)");
  worker
      ->add_option("--rendezvous", options->rendezvous,
                   "Where rank 0 is found: env://, tcp://H:P, file:///PATH, redis://H:P[/KEY]")
      ->option_text("URL")
      ->group(group);
  worker->add_option("--master-addr", options->master_addr, "Host of rank 0 (MASTER_ADDR)")
      ->option_text("HOST")
      ->group(group);
  worker->add_option("--master-port", options->master_port, "Port that it opens (MASTER_PORT)")
      ->option_text("PORT")
      ->check(between(int64_t{1}, int64_t{65535}))
      ->group(group);
  worker
      ->add_option("--interface", options->interface,
                   "Network interface of the ranks (GLOO_SOCKET_IFNAME)")
      ->option_text("NAME")
      ->group(group);
  worker
      ->add_option("--job-key-file", options->job_key_file,
                   "Secret of the job's processes, - for standard input (LOCKSTEP_JOB_KEY_FILE, "
                   "LOCKSTEP_JOB_KEY)")
      ->option_text("FILE")
      ->group(group);
}

}  // namespace

void add_worker(CLI::App& app, std::function<int()>* action) {
  CLI::App* worker = app.add_subcommand(
      "worker", "Run as one rank, or as the ranks of one node, under torchrun, srun or mpirun.");
  auto options = std::make_shared<WorkerOptions>();
  add_selection(worker, &options->verify.selection, true);
  add_place(worker, options);
  add_output(worker, &options->verify);
  worker->footer(R"(Examples, from the root of the repository
  mpirun -np 3 lockstep worker scenarios/equivalence/toy_model.json
  torchrun --nproc_per_node 4 --no-python lockstep worker scenarios/equivalence/toy_model.json
  lockstep worker scenarios/equivalence/toy_model.json --nodes 2 --node-rank 0 \
    --ranks-per-node 2 --master-addr node1 --master-port 29500

Exit codes
  0      every run did what its scenario expects
  1      a run did not
  2      bad input, another scenario or world size, or an output could not be written
  3      inconclusive: a run broke down, or the process of rank 0 died
  4      nothing was selected
  n      exit code of this process's rank, if it failed first; 128+n if signal n killed it
  128+n  interrupted by signal n)");
  worker->callback([=] { *action = [=] { return join_as_worker(*options); }; });
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGoodbye{5000};
constexpr milliseconds kCollect{120'000};
constexpr milliseconds kWait{50};
constexpr milliseconds kSilentWait{3000};

// What ranks of other processes, maybe of other hosts, cannot be.
std::optional<InputError> problem_of(const SelectedFile& file, const RunPlan& plan) {
  InputError error;
  if (plan.threads) {
    error = option_error("communicator \"local\" has its ranks in one process",
                         "\"gloo\", \"c10d\", \"shm\" or \"hierarchical\"");
    error.pointer = "/communicator/kind";
  } else if (plan.scenario.device == "auto") {
    error = option_error("device auto is each machine's own choice", "\"cpu\" or \"cuda\"");
    error.pointer = "/device";
  } else {
    return std::nullopt;
  }
  error.file = file.path;
  return error;
}

// The launcher's world size replaces the scenario's; one run it must be.
Expected<std::vector<SelectedFile>> select_one(Selection selection, int64_t world_size) {
  selection.sets.push_back(fmt::format("/world_size={}", world_size));
  auto files = select(selection);
  if (!files) return files;
  size_t runs = 0;
  for (const SelectedFile& file : files.value()) runs += file.plans.size();
  if (runs != 1)
    return InputErrors{
        option_error(fmt::format("a launcher's ranks are one run, and the selection has {}", runs),
                     "one scenario file; pin its axes with --set or choose with --filter")};
  for (const SelectedFile& file : files.value())
    for (const RunPlan& plan : file.plans)
      if (auto error = problem_of(file, plan)) return *error;
  return files;
}

std::string about_job(const JobPart& part) {
  return fmt::format("lockstep {} {} job {} ranks {}", lockstep_version(), lockstep_commit(),
                     part.placement.job, part.world_size);
}

// Alike on all members or they must not meet. Paths may differ from host to host.
std::string identity_of(const JobPart& part, std::vector<RunPlan> plans) {
  std::string text;
  for (RunPlan& plan : plans) {
    plan.file.clear();
    plan.scenario.golden.reset();
    text += to_text(plan);
  }
  return fmt::format("{} plan {:016x}", about_job(part), hash64(text.data(), text.size()));
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

class Member {
 public:
  Member(const WorkerOptions& options, const JobPart& part, const std::vector<SelectedFile>& files,
         std::string worker);
  int run();

 private:
  bool judges() const { return coordinator_ != nullptr; }
  void interrupt(int number);
  void meet();
  void still_waiting(const std::string& why, Deadline silent);
  void find_out_dir();
  void check_interface() const;
  std::string own_address();
  void execute();
  RunOutcome collect(size_t index);
  int conclude_all();
  int goodbye(int code, const std::string& why);
  void say_where() const;

  const WorkerOptions& options_;
  const JobPart& part_;
  const std::string worker_;
  Runs runs_;
  Signals signals_;
  EventLoop loop_;
  int signal_ = 0;
  bool waiting_said_ = false;
  std::unique_ptr<NoticeBoard> board_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Link> link_;
  Topology topology_;
  std::optional<RunDirectory> directory_;
  std::string out_dir_;
  std::unique_ptr<Site> site_;
  ResultDocument document_;
  int64_t start_ns_ = now_ns();
};

Member::Member(const WorkerOptions& options, const JobPart& part,
               const std::vector<SelectedFile>& files, std::string worker)
    : options_(options), part_(part), worker_(std::move(worker)), runs_(options.verify, files) {
  document_.machine = this_machine();
  document_.seed = runs_.plans().front().scenario.seed;
  loop_.watch(signals_.fd(), [this] {
    while (const int number = signals_.next()) interrupt(number);
  });
  // A launcher that is gone, as an ssh that was interrupted, closes what it has read so far.
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    loop_.watch_hang_up(fd, [this] { interrupt(SIGHUP); });
}

void Member::interrupt(int number) {
  signal_ = number;
  if (link_) link_->abandon(128 + number, fmt::format("interrupted by signal {}", number));
}

void Member::still_waiting(const std::string& why, Deadline silent) {
  if (signal_ != 0) throw RunOver(128 + signal_, fmt::format("interrupted by signal {}", signal_));
  if (waiting_said_ || time_left(silent).count() > 0) return;
  waiting_said_ = true;
  print_error(fmt::format("lockstep: rank {}: waiting for rank 0: {}\n", part_.ranks.front(), why));
}

// What the answer rests on, once, from rank 0.
void Member::say_where() const {
  const Placement& p = part_.placement;
  print_error(fmt::format(
      "lockstep: {} {} by {}{}{}; rendezvous {}\n", part_.world_size,
      plural(part_.world_size, "rank"), p.launcher == "none" ? "command line" : p.launcher,
      p.seen.empty() ? "" : ": ", p.seen,
      part_.rendezvous.kind.empty() ? "not needed" : to_text(part_.rendezvous)));
  const bool others = !part_.rendezvous.kind.empty();
  if (others && part_.job_key.bytes.empty() && !(board_ && board_->keeps_secrets()))
    print_error(
        "lockstep: warning: the job has no key: anyone who can connect to rank 0 and knows the "
        "scenario can join; give all processes the same LOCKSTEP_JOB_KEY\n");
}

void Member::meet() {
  const milliseconds patience(runs_.plans().front().scenario.timeouts.rendezvous_ms);
  const Deadline deadline = deadline_after(patience);
  const Credentials credentials{part_.job_key.bytes, identity_of(part_, runs_.plans())};
  board_ = make_notice_board(part_.rendezvous, deadline);
  HostPort address = part_.rendezvous.address;
  if (part_.ranks.front() == 0) {
    say_where();
    const auto tell = [](const std::string& what) {
      print_error(fmt::format("lockstep: rank 0: {}\n", what));
    };
    auto opened = open_coordinator(loop_, part_.rendezvous, part_.interface_address,
                                   {part_.world_size, credentials, about_job(part_), "", "", tell},
                                   board_.get(), &address);
    if (!opened) throw RunOver(kExitBadInput, to_text(opened.errors().front()));
    coordinator_ = std::move(opened.value());
  }
  const MemberIdentity own{"",
                           about_job(part_),
                           "",
                           part_.ranks,
                           host_key(part_.placement.node),
                           fmt::format("task {} on {}", part_.placement.task, host_name())};
  const Deadline silent = deadline_after(kSilentWait);
  link_ = join_run(loop_, address, board_.get(), own, credentials, deadline,
                   [&](const std::string& why) { still_waiting(why, silent); });
  if (signal_ != 0) interrupt(signal_);
  try {
    topology_ = topology_of(link_->get("hosts", deadline), part_.ranks);
  } catch (const RunOver& over) {
    if (!judges() || coordinator_->all_joined() || signal_ != 0 || !coordinator_->problem().empty())
      throw;
    const std::string& refused = coordinator_->refused();
    throw RunOver(over.code(), fmt::format("ranks {} have not joined within {} ms{}{}",
                                           coordinator_->missing_ranks(), patience.count(),
                                           refused.empty() ? "" : "; ", refused));
  }
  check_interface();
}

void Member::find_out_dir() {
  const std::string key = fmt::format("out/{}", topology_.host_leader);
  if (!topology_.leads_host) {
    out_dir_ = link_->get(key, deadline_after(kCollect));
    return;
  }
  // Another host may see the same --out through a network.
  std::string out = options_.verify.out;
  if (!out.empty() && topology_.host_leader != 0)
    out += fmt::format("/host-of-rank-{}", topology_.host_leader);
  auto directory = out.empty() ? RunDirectory::numbered() : RunDirectory::at(out);
  if (!directory) throw RunOver(kExitBadInput, to_text(directory.errors().front()));
  directory_.emplace(std::move(directory.value()));
  out_dir_ = directory_->path();
  link_->set(key, out_dir_, deadline_after(kCollect));
}

RunOutcome Member::collect(size_t index) {
  const milliseconds run(runs_.plans()[index].scenario.timeouts.run_ms);
  const Deadline deadline = deadline_after(run + kCollect);
  while (!coordinator_->run_over()) {
    link_->check();
    if (time_left(deadline).count() == 0)
      throw RunOver(kExitInconclusive, "not every process has handed in its part in time");
    loop_.wait(kWait);
  }
  return coordinator_->take_outcome();
}

// Of every rank at once, before any waits for another: who left first would be lost to the others.
void Member::check_interface() const {
  const std::string& chosen = part_.interface_address;
  if (!topology_.one_network && is_loopback(chosen))
    throw RunOver(kExitBadInput, fmt::format("the interface that was chosen has address {}, at "
                                             "which other hosts cannot reach rank {}",
                                             chosen, part_.ranks.front()));
}

// At which ranks of this process are to be reached; empty: on one host, by loopback.
std::string Member::own_address() {
  const std::string& chosen = part_.interface_address;
  if (!chosen.empty() || topology_.one_host) return chosen;
  std::string address = link_->own_address();
  if (topology_.one_network || !is_loopback(address)) return address;
  return link_->get("reached_at", deadline_after(kCollect));  // beside rank 0's process
}

void Member::execute() {
  site_ = std::make_unique<Site>(loop_, *link_,
                                 Site::Options{worker_, out_dir_, own_address(), topology_});
  for (size_t i = 0; i < runs_.plans().size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    const std::string dir = run_dir_of(out_dir_, i);
    if (judges()) coordinator_->begin_run(number, runs_.plans()[i], dir);
    site_->run(number, runs_.plans()[i]);
    if (judges() && !runs_.done(i, collect(i))) remove_dir(dir);
  }
}

// Rank 0 prints and tells the others.
int Member::conclude_all() {
  document_.not_run = runs_.not_run();
  document_.runs = runs_.take();
  document_.libraries = read_libraries(out_dir_ + "/libraries.json");
  document_.duration_ms = (now_ns() - start_ns_) / 1'000'000;
  conclude(signal_, &document_);
  if (directory_) leave_result(*directory_, document_);
  return report(options_.verify, document_);
}

int Member::goodbye(int code, const std::string& why) {
  if (!judges()) return code;
  coordinator_->end(code, why);
  const Deadline deadline = deadline_after(kGoodbye);
  link_.reset();
  while (!coordinator_->all_gone() && time_left(deadline).count() > 0) loop_.wait(kWait);
  return code;
}

int Member::run() {
  int code = 0;
  std::string why;
  try {
    meet();
    find_out_dir();
    execute();
    if (judges()) {
      code = conclude_all();
      why = "judged";
    } else {
      link_->get("never", kNoDeadline);  // until rank 0 says what it was
    }
  } catch (const RunOver& over) {
    code = over.code();
    why = over.what();
    if (why != "judged")
      print_error(fmt::format("lockstep: rank {}: {}\n", part_.ranks.front(), why));
  } catch (const std::exception& error) {
    code = kExitInconclusive;
    why = fmt::format("rank {}: {}", part_.ranks.front(), error.what());
    print_error(fmt::format("lockstep: error: {}\n", why));
  }
  if (judges() && why != "judged") {
    document_.errors.push_back(option_error(why));
    conclude(signal_, &document_);
    if (code == kExitBadInput) document_.exit_code = code;
    write_output("--json", options_.verify.json, code, [&] { return to_text(document_); });
    leave_ci_reports(options_.verify.ci, test_report("worker", document_), code);
  }
  goodbye(signal_ != 0 ? kExitInconclusive : code, why);
  // Where all is as expected that holds for a rank that was to fail too.
  const int own = code != 0 && site_ ? site_->own_failure() : 0;
  site_.reset();
  return own != 0 ? own : code;
}

}  // namespace

int join_as_worker(const WorkerOptions& options) {
  const Variables variables = this_environment();
  const auto part = decide_part(options, variables);
  if (!part) return bad_input(part.errors());
  if (part.value().ranks.front() == 0) {  // who writes
    InputErrors errors = ci_errors(options.verify.ci);
    check_output("--json", options.verify.json, &errors);
    if (!errors.empty()) return bad_input(errors, options.verify.json, options.verify.ci);
  }
  auto files = select_one(options.verify.selection, part.value().world_size);
  if (!files) return bad_input(files.errors());
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors());
  return Member(options, part.value(), files.value(), worker.value()).run();
}

}  // namespace lockstep
