#include "sim/worker/main/worker_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include "sim/launch/limits.h"
#include "sim/worker/main/tasks.h"
#include "sim/worker/worker_process.h"

namespace lockstep {
namespace {

constexpr int kExitNoRoom = 3;

// A descriptor that the launcher has left open for us; none if there is no such one.
std::optional<int> inherited_fd(const char* text) {
  char* end = nullptr;
  const long fd = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || fd < 3 || fd > 1'000'000) return std::nullopt;
  if (::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC) != 0) return std::nullopt;
  return static_cast<int>(fd);
}

int explain() {
  fmt::print(stderr,
             "lockstep-worker is a part of lockstep that `lockstep` starts by itself.\n"
             "Try `lockstep verify --help`.\n");
  return 2;
}

// Its one line of output says what went wrong, if anything did.
int profile(const char* plan_file, const char* repetitions) {
  try {
    fmt::print("{}", worker_profile(plan_file, std::strtoll(repetitions, nullptr, 10)));
  } catch (const std::exception& error) {
    fmt::print("error: {}\n", error.what());
  }
  return 0;
}

// Where ranks would find no room there is nobody to accuse: none is forked.
int zygote(int fd) {
  const std::string why = why_no_room(1);
  if (why.empty()) {
    prepare_forks();
    return run_zygote(fd, run_task);
  }
  fmt::print(stderr, "{}\n", why);
  return kExitNoRoom;
}

}  // namespace

bool is_worker_call(int argc, char** argv) {
  if (argc < 2) return false;
  for (const char* word :
       {"--libraries", "--devices", "--registered", "--profile", "--explore", "--zygote", "--task"})
    if (std::strcmp(argv[1], word) == 0) return true;
  return false;
}

int worker_main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--libraries") == 0) {
    fmt::print("{}\n", worker_libraries());
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--devices") == 0) {
    fmt::print("{}\n", worker_devices());
    return 0;
  }
  if (argc >= 2 && std::strcmp(argv[1], "--registered") == 0) {
    fmt::print("{}\n", worker_unknown_names({argv + 2, argv + argc}));
    return 0;
  }
  if (argc == 4 && std::strcmp(argv[1], "--profile") == 0) return profile(argv[2], argv[3]);
  if (argc == 3 && std::strcmp(argv[1], "--explore") == 0) return worker_explore(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--zygote") == 0) {
    const std::optional<int> fd = inherited_fd(argv[2]);
    return fd ? zygote(*fd) : explain();
  }
  if (argc == 5 && std::strcmp(argv[1], "--task") == 0 && std::strcmp(argv[3], "--control") == 0) {
    const std::optional<WorkerTask> task = decode_task(argv[2]);
    const std::optional<int> fd = inherited_fd(argv[4]);
    if (task && fd) be_worker(*task, *fd, run_task);
  }
  return explain();
}

}  // namespace lockstep
