#include "sim/join/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"
#include "scenarios/base/random_bytes.h"
#include "scenarios/base/text.h"
#include "sim/join/wire.h"

extern char** environ;
namespace lockstep {
namespace {

constexpr int64_t kMostTasks = 1 << 20;

// Where a launcher leaves its numbers; the first of several names that is set counts.
struct Names {
  const char* launcher;
  std::array<const char*, 2> task, tasks, local, local_tasks, node, nodes;
};
constexpr std::array<Names, 3> kLaunchers{{
    {"torchrun",
     {"RANK"},
     {"WORLD_SIZE"},
     {"LOCAL_RANK"},
     {"LOCAL_WORLD_SIZE"},
     {"GROUP_RANK"},
     {"GROUP_WORLD_SIZE"}},
    {"mpi",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {},
     {}},
    // In a batch script without srun SLURM_PROCID is set too: only a job step has SLURM_STEP_ID.
    {"slurm",
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     {},
     {"SLURM_NODEID"},
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}},
}};

struct Value {
  std::string name, text;
  int64_t number = 0;
};

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return variables_.count(name) > 0; }
  std::string text(const char* name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? "" : found->second;
  }
  // A whole number from `least`; an error where the variable is set to anything else.
  std::optional<Value> number(const std::array<const char*, 2>& names, int64_t least) {
    for (const char* name : names)
      if (name != nullptr && has(name)) return number(name, least, kMostTasks);
    return std::nullopt;
  }
  std::optional<Value> number(const char* name, int64_t least, int64_t most) {
    Value value{name, text(name)};
    const auto number = number_in<int64_t>(value.text);
    if (number && *number >= least && *number <= most) {
      value.number = *number;
      return value;
    }
    fail(fmt::format("{} is \"{}\"", name, value.text),
         fmt::format("an integer from {} to {}", least, most));
    return std::nullopt;
  }
  // `index` counts from 0 what `count` says there are.
  void below(const std::optional<Value>& index, const std::optional<Value>& count) {
    if (index && count && index->number >= count->number)
      contradiction(*index, *count, fmt::format("{} below {}", index->name, count->name));
  }
  void at_most(const std::optional<Value>& part, const std::optional<Value>& whole) {
    if (part && whole && part->number > whole->number)
      contradiction(*part, *whole, fmt::format("{} at most {}", part->name, whole->name));
  }
  void fail(std::string message, std::string allowed) {
    errors_.push_back({"", 0, 0, "", std::move(message), std::move(allowed)});
  }
  const InputErrors& errors() const { return errors_; }

 private:
  void contradiction(const Value& a, const Value& b, const std::string& allowed) {
    fail(fmt::format("{}={} contradicts {}={}", a.name, a.number, b.name, b.number), allowed);
  }
  const Variables& variables_;
  InputErrors errors_;
};

bool has_any(const Reader& reader, const std::array<const char*, 2>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return name != nullptr && reader.has(name); });
}

bool complete(const Reader& reader, const Names& names) {
  const bool step = std::string(names.launcher) != "slurm" || reader.has("SLURM_STEP_ID") ||
                    reader.has("SLURM_STEPID");
  return step && has_any(reader, names.task) && has_any(reader, names.tasks);
}

std::string plain(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  return text.substr(0, 80);
}

std::string job_of(const Reader& reader, const std::string& launcher) {
  if (launcher == "torchrun")  // a restarted group is another one
    return plain(fmt::format("torchrun-{}-{}-{}", reader.text("TORCHELASTIC_RUN_ID"),
                             reader.text("MASTER_PORT"),
                             reader.text("TORCHELASTIC_RESTART_COUNT")));
  if (launcher == "mpi")
    return plain("mpi-" + (reader.has("PMIX_NAMESPACE") ? reader.text("PMIX_NAMESPACE")
                                                        : reader.text("OMPI_MCA_ess_base_jobid")));
  const char* step = reader.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  return plain(fmt::format("slurm-{}-{}", reader.text("SLURM_JOB_ID"), reader.text(step)));
}

void read_master(Reader& reader, Placement* placement) {
  placement->master_addr = reader.text("MASTER_ADDR");
  if (!reader.has("MASTER_PORT")) return;
  if (const auto port = reader.number("MASTER_PORT", 1, 65535))
    placement->master_port = port->number;
  std::string agent = reader.text("TORCHELASTIC_USE_AGENT_STORE");
  for (char& c : agent) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  placement->port_held = agent == "true" || agent == "1";
}

std::string shown(std::initializer_list<std::optional<Value>> values) {
  std::string text;
  for (const auto& value : values)
    if (value) text += fmt::format("{}{}={}", text.empty() ? "" : " ", value->name, value->number);
  return text;
}

Expected<Placement> read(Reader& reader, const Names& names) {
  const auto task = reader.number(names.task, 0), tasks = reader.number(names.tasks, 1);
  const auto local = reader.number(names.local, 0);
  const auto local_tasks = reader.number(names.local_tasks, 1);
  const auto node = reader.number(names.node, 0), nodes = reader.number(names.nodes, 1);
  reader.below(task, tasks);
  // Local numbers need not follow the order of ranks: Open MPI 6 gives rank 1 of 3 the number 2.
  reader.below(local, local_tasks ? local_tasks : tasks);
  reader.at_most(local_tasks, tasks);
  reader.below(node, nodes);
  reader.at_most(nodes, tasks);
  Placement placement;
  placement.launcher = names.launcher;
  read_master(reader, &placement);
  if (!reader.errors().empty()) return reader.errors();
  placement.task = task->number;
  placement.tasks = tasks->number;
  if (node) placement.node = node->number;
  if (nodes) placement.nodes = nodes->number;
  placement.one_host =
      local_tasks ? local_tasks->number == tasks->number : nodes && nodes->number == 1;
  placement.job = job_of(reader, placement.launcher);
  placement.seen = shown({task, tasks, node, nodes});
  return placement;
}

}  // namespace

Variables this_environment() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

Expected<Placement> detect_placement(const Variables& variables, const std::string& launcher) {
  Reader reader(variables);
  for (const Names& names : kLaunchers) {
    if (launcher != "auto" && launcher != names.launcher) continue;
    if (complete(reader, names)) return read(reader, names);
    if (launcher == "auto") continue;
    reader.fail(
        fmt::format("--launcher {}: {} and {} are not both set{}", launcher, names.task[0],
                    names.tasks[0], launcher == "slurm" ? " in a job step (SLURM_STEP_ID)" : ""),
        "to be started by it, or --launcher none");
    return reader.errors();
  }
  Placement placement;
  placement.launcher = "none";
  read_master(reader, &placement);
  if (!reader.errors().empty()) return reader.errors();
  placement.port_held = false;
  placement.one_host = true;
  return placement;
}

Variables recorded_variables(const Variables& variables) {
  Variables recorded;
  for (const auto& [name, value] : variables)
    for (const char* prefix : {"NCCL_", "GLOO_", "OMP_"})
      if (name.starts_with(prefix)) recorded[name] = value;
  return recorded;
}

namespace {

constexpr size_t kKeyBytesMin = 16, kKeyBytesMax = 4096;
constexpr std::chrono::seconds kKeyPatience{30};
// Of Open MPI up to 5: 128 random bits for each job, in the environment of its processes alone.
constexpr const char* kMpiKey = "OMPI_MCA_orte_precondition_transports";

InputError bad_key(const std::string& message) {
  return {"",
          0,
          0,
          "",
          message,
          fmt::format("a secret of {} to {} bytes, the same for all processes of the job, and for "
                      "nobody else to read: `openssl rand -hex 32` makes one",
                      kKeyBytesMin, kKeyBytesMax)};
}

Expected<JobKey> checked(std::string bytes, std::string source) {
  while (!bytes.empty() && (bytes.back() == '\n' || bytes.back() == '\r')) bytes.pop_back();
  if (bytes.size() >= kKeyBytesMin && bytes.size() <= kKeyBytesMax)
    return JobKey{std::move(bytes), std::move(source)};
  return bad_key(fmt::format("{} holds a key of {} bytes", source, bytes.size()));
}

// Up to the end, or to one byte more than a key may have; a pipe may be slow.
std::optional<std::string> read_key(int fd) {
  const Deadline deadline = deadline_after(kKeyPatience);
  std::string bytes;
  char buffer[kKeyBytesMax + 2];
  while (bytes.size() <= kKeyBytesMax) {
    pollfd ready{fd, POLLIN, 0};
    const int n = ::poll(&ready, 1, static_cast<int>(time_left(deadline).count()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

Expected<JobKey> from_standard_input(const std::string& source) {
  const auto bytes = read_key(STDIN_FILENO);
  if (bytes && !bytes->empty()) return checked(*bytes, source + " - (standard input)");
  return bad_key(source + " -: there is no key on standard input (a remote shell must pass it on)");
}

Expected<JobKey> from_file(const std::string& path, const std::string& source) {
  if (path == "-") return from_standard_input(source);
  const std::string what = fmt::format("{} {}", source, path);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
    return bad_key(fmt::format("{}: {}", what, std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return bad_key(what + ": no regular file");
  if ((info.st_mode & 077) != 0)
    return bad_key(
        fmt::format("{}: other users have access to it (mode {:04o})", what, info.st_mode & 07777));
  const auto bytes = read_key(fd.get());
  if (!bytes) return bad_key(fmt::format("{}: {}", what, std::strerror(errno)));
  return checked(*bytes, what);
}

}  // namespace

Expected<JobKey> find_job_key(const Variables& variables, const Placement& placement,
                              const std::string& file) {
  const auto value = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  if (!file.empty()) return from_file(file, "--job-key-file");
  if (const auto path = value("LOCKSTEP_JOB_KEY_FILE"))
    return from_file(*path, "LOCKSTEP_JOB_KEY_FILE");
  if (const auto key = value("LOCKSTEP_JOB_KEY")) return checked(*key, "LOCKSTEP_JOB_KEY");
  const auto handed_out = placement.launcher == "mpi" ? value(kMpiKey) : std::nullopt;
  if (handed_out && handed_out->size() >= kKeyBytesMin) return JobKey{*handed_out, kMpiKey};
  return JobKey();
}

std::string new_job_key() { return to_hex(random_bytes(kNonceBytes)); }

}  // namespace lockstep
