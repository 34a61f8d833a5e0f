#include "sim/record/core_wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <sstream>
#include <utility>

namespace lockstep {
namespace {

UniqueFd opened(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// The whole of a short file of the kernel's; empty where it cannot be read, as of a thread that has
// ended.
std::string text_of(const UniqueFd& file) {
  std::array<char, 4096> text{};
  const ssize_t bytes = ::pread(file.get(), text.data(), text.size(), 0);
  return bytes > 0 ? std::string(text.data(), static_cast<size_t>(bytes)) : std::string();
}

// "666808361 1358988996 180": ns on a core, ns waiting for one, how often. No allocation: this is
// read in every phase.
int64_t wait_in(const UniqueFd& schedstat) noexcept {
  std::array<char, 96> text{};
  if (::pread(schedstat.get(), text.data(), text.size() - 1, 0) <= 0) return 0;
  char* end = nullptr;
  std::strtoll(text.data(), &end, 10);
  return std::strtoll(end, nullptr, 10);
}

template <class Visit>
void for_each_thread(const std::string& folder, Visit visit) {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir))
    if (const int64_t thread = std::strtoll(entry->d_name, nullptr, 10); thread > 0) visit(thread);
  ::closedir(dir);
}

// Folder of the group whose cpu controller rules this process: lines of /proc/self/cgroup are
// "NUMBER:CONTROLLER,...:/PATH", of version 2 without a controller.
std::string folder_of_group(const std::string& groups) {
  std::istringstream lines(groups);
  std::string version2;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find(",cpu,") != controllers.npos)
      return "/sys/fs/cgroup/cpu" + line.substr(second + 1);
    if (controllers == ",,") version2 = "/sys/fs/cgroup" + line.substr(second + 1);
  }
  return version2;
}

// A group of many, as a container, limits all ranks alike.
bool holds_this_process_alone(const std::string& folder) {
  const std::string processes = text_of(opened(folder + "/cgroup.procs"));
  return processes == std::to_string(::getpid()) + "\n";
}

// "throttled_time 965144014" of version 1 is in ns, "throttled_usec 965144" of version 2 in us.
int64_t throttled_in(const std::string& statistics) {
  for (const auto& [key, ns] :
       {std::pair("throttled_time ", 1), std::pair("throttled_usec ", 1000)})
    if (const size_t at = statistics.find(key); at != statistics.npos)
      return std::strtoll(statistics.c_str() + at + std::strlen(key), nullptr, 10) * ns;
  return 0;
}

}  // namespace

std::unique_ptr<CoreWait> CoreWait::of_this_thread() {
  const auto thread = static_cast<int64_t>(::syscall(SYS_gettid));
  return std::unique_ptr<CoreWait>(new CoreWait(thread, thread == ::getpid()));
}

CoreWait::CoreWait(int64_t thread, bool speaks_for_all)
    : thread_(thread),
      speaks_for_all_(speaks_for_all),
      own_(opened("/proc/thread-self/schedstat")) {
  look_for_group();
}

int64_t CoreWait::own_ns() noexcept { return wait_in(own_) - throttled_ns(); }

int64_t CoreWait::others_ns() noexcept {
  if (!speaks_for_all_) return 0;
  try {
    find_threads();
  } catch (const std::exception&) {  // no memory: as many as are known
  }
  int64_t sum_ns = ended_ns_;
  for (auto& [thread, other] : others_) sum_ns += other.wait_ns;
  return sum_ns;
}

void CoreWait::find_threads() {
  for (auto it = others_.begin(); it != others_.end();) {
    const int64_t wait_ns = wait_in(it->second.file);
    const bool ended = wait_ns < it->second.wait_ns;  // it cannot be read any more
    if (ended) ended_ns_ += it->second.wait_ns;
    if (!ended) it->second.wait_ns = wait_ns;
    it = ended ? others_.erase(it) : std::next(it);
  }
  struct stat tasks {};  // links: one a thread, and two of any folder
  if (::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == others_.size() + 3) return;
  for_each_thread("/proc/self/task", [&](int64_t thread) {
    if (thread == thread_ || others_.contains(thread)) return;
    UniqueFd file = opened("/proc/self/task/" + std::to_string(thread) + "/schedstat");
    const int64_t wait_ns = wait_in(file);
    others_.emplace(thread, Thread{std::move(file), wait_ns});
  });
}

void CoreWait::look_for_group() noexcept {
  if (!speaks_for_all_) return;
  try {
    std::string groups = text_of(opened("/proc/self/cgroup"));
    if (groups == groups_) return;
    groups_ = std::move(groups);
    throttled_offset_ns_ = throttled_ns();
    group_statistics_ = UniqueFd();
    const std::string folder = folder_of_group(groups_);
    if (folder.empty() || !holds_this_process_alone(folder)) return;
    group_statistics_ = opened(folder + "/cpu.stat");
    throttled_offset_ns_ -= throttled_in(text_of(group_statistics_));
  } catch (const std::exception&) {  // no memory: throttling counts as waiting
  }
}

int64_t CoreWait::throttled_ns() noexcept {
  if (group_statistics_.get() < 0) return throttled_offset_ns_;
  std::array<char, 1024> text{};
  const ssize_t bytes = ::pread(group_statistics_.get(), text.data(), text.size() - 1, 0);
  if (bytes <= 0) return last_throttled_ns_;  // the group is gone
  return last_throttled_ns_ = throttled_offset_ns_ + throttled_in(text.data());
}

int64_t core_wait_of_main_thread(int64_t pid) {
  return wait_in(opened("/proc/" + std::to_string(pid) + "/schedstat"));
}

}  // namespace lockstep
