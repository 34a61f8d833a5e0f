#include "sim/cli/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> numbered_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && is_number(entry.path().filename()))
      names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return names;
}

int lock(const std::string& folder, bool create) {
  const int fd =
      open((folder + "/lock").c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return -2;  // in use
}

// mkdir decides between invocations that ask at the same time.
std::string make_next(const std::string& runs) {
  const auto names = numbered_in(runs);
  int64_t next = names.empty() ? 1 : std::strtoll(names.back().c_str(), nullptr, 10) + 1;
  for (int attempt = 0; attempt < 1000; ++attempt, ++next) {
    std::string path = fmt::format("{}/{:04}", runs, next);
    if (mkdir(path.c_str(), 0700) == 0) return path;
    if (errno != EEXIST) return "";
  }
  return "";
}

InputError refused_path(const std::string& path, const std::string& why) {
  return option_error(fmt::format("--out {}: {}", path, why),
                      "a directory that can be written to, or a path where one can be made");
}

void remove_old_runs(const std::string& folder) {
  std::error_code error;
  int64_t removed = 0;
  for (const std::string& name : numbered_in(folder))
    for (const char* plan : {"plan.json", "collective.json"})
      if (fs::exists(fmt::format("{}/{}/{}", folder, name, plan), error))
        removed += fs::remove_all(folder + "/" + name, error) > 0;
  if (removed > 0)
    print_error(
        fmt::format("lockstep: warning: --out {}: {} {} of an earlier invocation replaced\n",
                    folder, removed, plural(removed, "run")));
}

bool passed(const std::string& folder) {
  const std::string line = read_foreign_file(folder + "/verdict").value_or("");
  return line == std::string(to_word(Verdict::pass)) + "\n";
}

}  // namespace

std::vector<std::string> state_folders() {
  std::vector<std::string> found;
  const auto absolute = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? value : "";
  };
  const std::string state = absolute("XDG_STATE_HOME"), home = absolute("HOME");
  if (!state.empty()) found.push_back(state + "/lockstep");
  if (!home.empty()) found.push_back(home + "/.local/state/lockstep");
  found.push_back(fmt::format("/tmp/lockstep-{}", geteuid()));
  return found;
}

bool make_private_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         access(path.c_str(), W_OK | X_OK) == 0;
}

Expected<RunDirectory> RunDirectory::at(const std::string& path) {
  std::error_code error;
  const std::string folder = fs::absolute(path, error).lexically_normal().string();
  struct stat info {};
  if (stat(folder.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) return refused_path(path, "is not a directory");
  } else {
    fs::create_directories(fs::path(folder).parent_path(), error);
    if (mkdir(folder.c_str(), 0700) != 0) return refused_path(path, strerror(errno));
  }
  const int fd = lock(folder, true);
  if (fd == -2) return refused_path(path, "another lockstep is using it");
  if (fd < 0) return refused_path(path, strerror(errno));
  remove_old_runs(folder);
  return RunDirectory(folder, fd);
}

Expected<RunDirectory> RunDirectory::numbered() {
  for (const std::string& base : state_folders()) {
    const std::string runs = base + "/runs";
    if (!make_private_folder(base) || !make_private_folder(runs)) continue;
    prune(runs, kRunsKept - 1);
    const std::string folder = make_next(runs);
    if (folder.empty()) continue;
    const int fd = lock(folder, true);
    if (fd >= 0) return RunDirectory(folder, fd);
  }
  return InputError{.file = "",
                    .line = 0,
                    .column = 0,
                    .pointer = "",
                    .message = "no folder for run directories can be written to (tried " +
                               fmt::format("{}", fmt::join(state_folders(), ", ")) + ")",
                    .allowed = "--out FOLDER"};
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

RunDirectory::~RunDirectory() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

void RunDirectory::note_verdict(Verdict verdict) const {
  std::ofstream(path_ + "/verdict") << to_word(verdict) << "\n";
}

void prune(const std::string& runs, size_t keep) {
  const std::vector<std::string> names = numbered_in(runs);
  if (names.size() <= keep) return;
  size_t too_many = names.size() - keep;
  for (bool also_failed : {false, true})
    for (const std::string& name : names) {  // oldest first
      const std::string folder = runs + "/" + name;
      if (too_many == 0) return;
      if (access(folder.c_str(), F_OK) != 0 || (!also_failed && !passed(folder))) continue;
      const int fd = lock(folder, false);
      if (fd == -2) continue;
      if (fd >= 0) close(fd);
      std::error_code error;
      fs::remove_all(folder, error);
      --too_many;
    }
}

std::string whole_path(const std::string& folder) {
  std::error_code ignored;
  return (fs::absolute(folder, ignored).lexically_normal() / "").parent_path().string();
}

std::vector<std::string> run_folders(const std::string& folder) {
  const std::string whole = whole_path(folder);
  std::vector<std::string> found;
  std::error_code error;
  if (!fs::exists(whole + "/plan.json", error))
    for (const auto& entry : fs::directory_iterator(whole, error))
      if (fs::exists(entry.path() / "plan.json", error)) found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found.empty() ? std::vector<std::string>{whole} : found;
}

InputError refused_folder(const std::string& folder, const std::string& why) {
  return option_error(fmt::format("{}: {}", folder, why),
                      "a folder that verify or run left, with --keep or of a run not as expected");
}

Expected<RunOutcome> read_run_folder(const std::string& folder) {
  std::string why;
  auto outcome = read_stored_run(folder, &why);
  if (!outcome) return refused_folder(folder, why);
  return std::move(*outcome);
}

}  // namespace lockstep
