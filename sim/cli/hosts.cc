#include "sim/cli/hosts.h"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "sim/cli/execution.h"
#include "sim/join/environment.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/workers.h"

extern char** environ;
namespace lockstep {
namespace {

// One task per node, as --nodes says: the launcher, if any, must have started just these.
Expected<Placement> on_nodes(const WorkerOptions& options, Placement placement) {
  const int64_t nodes = options.nodes.value_or(placement.tasks);
  if (placement.launcher != "none" && placement.tasks != nodes)
    return option_error(fmt::format("--nodes {} contradicts the {} tasks that {} has started ({})",
                                    nodes, placement.tasks, placement.launcher, placement.seen),
                        "one task per node");
  if (options.node_rank)
    placement.task = *options.node_rank;
  else if (placement.launcher == "none" && nodes > 1)
    return option_error(fmt::format("--nodes {} without --node-rank", nodes),
                        fmt::format("--node-rank K from 0 to {}", nodes - 1));
  if (placement.task >= nodes)
    return option_error(fmt::format("--node-rank {} with --nodes {}", placement.task, nodes),
                        fmt::format("--node-rank from 0 to {}", nodes - 1));
  placement.tasks = nodes;
  placement.node = placement.task;
  placement.one_host = nodes == 1;
  return placement;
}

Expected<Placement> place(const WorkerOptions& options, const Variables& variables) {
  auto placement = detect_placement(variables, options.launcher);
  if (!placement) return placement;
  if (options.nodes || options.node_rank) placement = on_nodes(options, placement.value());
  if (!placement) return placement;
  Placement& p = placement.value();
  if (p.launcher == "none" && !options.nodes && !options.ranks_per_node)
    return option_error(
        "no launcher has started this process: none of RANK and WORLD_SIZE, "
        "OMPI_COMM_WORLD_RANK and _SIZE, SLURM_PROCID of a job step is set",
        "torchrun, mpirun or srun, or --nodes, --node-rank and --ranks-per-node");
  if (!options.master_addr.empty()) p.master_addr = options.master_addr;
  if (options.master_port != 0) p.master_port = options.master_port;
  if (!options.master_addr.empty() || options.master_port != 0) p.port_held = false;
  return placement;
}

// --interface, else what Gloo itself would be told.
Expected<std::string> interface_address(const WorkerOptions& options, const Variables& variables) {
  std::string name = options.interface, source = "--interface";
  if (const auto found = variables.find("GLOO_SOCKET_IFNAME");
      name.empty() && found != variables.end()) {
    name = found->second.substr(0, found->second.find(','));
    source = "GLOO_SOCKET_IFNAME";
  }
  if (name.empty()) return std::string();
  if (const auto address = address_of_interface(name)) return *address;
  return option_error(fmt::format("{} {}: no such interface with an address", source, name),
                      interfaces());
}

}  // namespace

Expected<JobPart> decide_part(const WorkerOptions& options, const Variables& variables) {
  const auto placement = place(options, variables);
  if (!placement) return placement.errors();
  const auto address = interface_address(options, variables);
  if (!address) return address.errors();
  auto key = find_job_key(variables, placement.value(), options.job_key_file);
  if (!key) return key.errors();
  JobPart part;
  part.job_key = key.value();
  part.placement = placement.value();
  part.interface_address = address.value();
  const int64_t per_task = options.ranks_per_node.value_or(1);
  part.world_size = part.placement.tasks * per_task;
  for (int64_t i = 0; i < per_task; ++i) part.ranks.push_back(part.placement.task * per_task + i);
  if (part.placement.tasks == 1) return part;
  auto rendezvous = choose_rendezvous(options.rendezvous, part.placement);
  if (!rendezvous) return rendezvous.errors();
  part.rendezvous = rendezvous.value();
  return part;
}

namespace {

constexpr int kUnreachable = 255;  // what ssh says of its own; no worker ends so
constexpr std::chrono::seconds kEarly{10};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);)
    if (!word.empty()) words.push_back(word);
  return words;
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// What a child reads from standard input, and nobody else sees.
UniqueFd input_of(const std::string& text) {
  UniqueFd fd(::memfd_create("key", MFD_CLOEXEC));
  const bool written = fd.valid() && ::write(fd.get(), text.data(), text.size()) ==
                                         static_cast<ssize_t>(text.size());
  if (!written || ::lseek(fd.get(), 0, SEEK_SET) != 0) fd.reset();
  return fd;
}

Spawned start(const std::vector<std::string>& command, const std::string& input) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const UniqueFd in = input_of(input);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  Spawned child;
  const int error = posix_spawnp(&child.pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    print_error(fmt::format("lockstep: error: {}: {}\n", command.front(), strerror(error)));
    child.pid = 0;
    return child;
  }
  child.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  return child;
}

void terminate(const std::vector<Spawned>& children) {
  for (const Spawned& child : children) send_signal(child.pidfd, SIGTERM);
}

bool unreachable(int status) {
  return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == kUnreachable;
}

// The ends of all children. Signals that come meanwhile go to all. A host that could not be reached
// at all ends the others too, which would wait for it; one that is lost later is rank 0's matter.
struct Ends {
  std::vector<int> statuses;
  int signal = 0;
  std::string missing;  // host
};
Ends wait_for(const std::vector<Spawned>& children, const std::vector<std::string>& hosts,
              Signals& signals) {
  const Deadline early = deadline_after(kEarly);
  Ends ends;
  ends.statuses.resize(children.size(), -1);
  while (true) {
    std::vector<pollfd> fds = {{signals.fd(), POLLIN, 0}};
    for (size_t i = 0; i < children.size(); ++i) {
      int& status = ends.statuses[i];
      if (status != -1) continue;
      if ((status = try_reap(children[i])) == -1)
        fds.push_back({children[i].pidfd.get(), POLLIN, 0});
      const bool never_began = unreachable(status) && time_left(early).count() > 0;
      if (!never_began || ends.signal != 0 || !ends.missing.empty()) continue;
      ends.missing = hosts[i];
      terminate(children);
    }
    if (fds.size() == 1) return ends;
    ::poll(fds.data(), fds.size(), -1);
    while (const int number = signals.next()) {
      ends.signal = number;
      terminate(children);
    }
  }
}

InputErrors errors_of(const std::vector<std::string>& hosts, const std::string& text) {
  for (const std::string& host : hosts)
    if (host.front() == '-' || host.find_first_of(" \t'\"\\;&|$`") != std::string::npos)
      return {option_error(fmt::format("--hosts: \"{}\" is no host's name", host),
                           "names or addresses of hosts with commas between them")};
  if (text.starts_with(',') || text.ends_with(',') || text.find(",,") != std::string::npos)
    return {option_error(fmt::format("--hosts \"{}\" has an empty name", printable(text)),
                         "names of hosts with commas between them")};
  return {};
}

}  // namespace

std::vector<std::string> remote_command(const HostsOptions& options,
                                        const std::vector<std::string>& hosts, size_t index,
                                        const std::string& folder, const std::string& program) {
  const Selection& selection = options.verify.selection;
  std::vector<std::string> words = {program, "worker"};
  words.insert(words.end(), selection.paths.begin(), selection.paths.end());
  for (const std::string& set : selection.sets) words.insert(words.end(), {"--set", set});
  for (const std::string& word : further_words(selection)) words.push_back(word);
  if (selection.seed) words.insert(words.end(), {"--seed", std::to_string(*selection.seed)});
  if (!selection.filter.empty()) words.insert(words.end(), {"--filter", selection.filter});
  const auto option = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  option("--launcher", "none");
  option("--nodes", std::to_string(hosts.size()));
  option("--node-rank", std::to_string(index));
  option("--ranks-per-node", std::to_string(options.ranks_per_host));
  option("--master-addr", hosts.front().substr(hosts.front().find('@') + 1));
  option("--master-port", std::to_string(options.master_port));
  option("--interface", options.interface);
  if (hosts.size() > 1) option("--job-key-file", "-");
  option("--out", options.verify.out);
  if (index == 0) {
    option("--json", options.verify.json);
    option("--junit", options.verify.ci.junit);
    option("--annotations", options.verify.ci.annotations);
    option("--color", options.verify.color);
    if (options.verify.quiet) words.push_back("--quiet");
    if (options.verify.verbose) words.push_back("--verbose");
    if (options.verify.keep) words.push_back("--keep");
    if (options.verify.metrics) words.push_back("--metrics");
  }
  std::string line = "cd " + quoted(folder) + " && exec";
  for (const std::string& word : words) line += " " + quoted(word);
  std::vector<std::string> command = split(options.remote_shell, ' ');
  command.insert(command.end(), {hosts[index], line});
  return command;
}

int verify_on_hosts(const HostsOptions& options) {
  const std::vector<std::string> hosts = split(options.hosts, ',');
  if (const InputErrors errors = errors_of(hosts, options.hosts); !errors.empty())
    return bad_input(errors, options.verify.json);
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  Signals signals;
  std::vector<Spawned> children;
  const std::string key = new_job_key() + "\n";
  for (size_t i = 0; i < hosts.size(); ++i) {
    children.push_back(start(remote_command(options, hosts, i, folder, program), key));
    if (children.back().pid != 0) continue;
    children.pop_back();
    terminate(children);
    for (const Spawned& child : children) kill_and_reap(child);
    return kExitBadInput;
  }
  Ends ends = wait_for(children, hosts, signals);
  if (ends.signal != 0) return 128 + ends.signal;
  const int first = ends.statuses.front();
  if (ends.missing.empty() && (!WIFEXITED(first) || unreachable(first)))
    ends.missing = hosts.front();
  if (ends.missing.empty()) return WEXITSTATUS(first);
  print_error(fmt::format("lockstep: error: {} could not be reached; exit {}\n", ends.missing,
                          kExitInconclusive));
  return kExitInconclusive;
}

}  // namespace lockstep
