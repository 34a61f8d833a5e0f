#include "sim/launch/limits.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

constexpr int64_t kUnlimited = INT64_MAX;
constexpr int64_t kMemoryUnknown = int64_t{10} << 30;

// The first number in a file; `otherwise` where there is none ("max").
int64_t number_in(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : otherwise;
}

// "NAME VALUE" lines.
int64_t entry_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string key; file >> key;) {
    int64_t value = 0;
    if (file >> value && key == name) return value;
  }
  return 0;
}

// The smallest of `limit` of the process's group and those above it. /proc/self/cgroup has lines
// "NUMBER:CONTROLLER,...:/PATH", of version 2 without a controller. Where a path is not there (a
// container that sees its own group as the root) its parents are.
int64_t smallest(const std::string& root, const std::string& controller,
                 const std::function<int64_t(const std::string& folder)>& limit) {
  std::ifstream file(root + "/proc/self/cgroup");
  int64_t least = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string own = line.substr(first + 1, second - first - 1);
    const bool version1 = ("," + own + ",").find("," + controller + ",") != line.npos;
    if (!own.empty() && !version1) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (version1 ? "/" + controller : "");
    std::string path = line.substr(second + 1);
    for (;; path.resize(path.rfind('/'))) {
      least = std::min(least, limit(mount + (path == "/" ? "" : path)));
      if (path.empty() || path.find('/') == path.npos) break;
    }
  }
  return least;
}

int64_t cores_of(const std::string& folder) {
  int64_t quota = 0, period = 0;
  std::ifstream version2(folder + "/cpu.max");
  if (!(version2 >> quota >> period)) {
    quota = number_in(folder + "/cpu.cfs_quota_us", -1);
    period = number_in(folder + "/cpu.cfs_period_us", 0);
  }
  if (quota <= 0 || period <= 0) return kUnlimited;
  return std::max<int64_t>(1, (quota + period - 1) / period);
}

// Page cache that nobody uses counts as free.
int64_t memory_of(const std::string& folder) {
  int64_t limit = number_in(folder + "/memory.max", kUnlimited);
  int64_t used = number_in(folder + "/memory.current", 0);
  int64_t cache = entry_in(folder + "/memory.stat", "inactive_file");
  if (limit == kUnlimited) {
    limit = number_in(folder + "/memory.limit_in_bytes", kUnlimited);
    used = number_in(folder + "/memory.usage_in_bytes", 0);
    cache = entry_in(folder + "/memory.stat", "total_inactive_file");
  }
  if (limit >= kUnlimited / 2) return kUnlimited;  // version 1's word for none
  return std::max<int64_t>(0, limit - used + cache);
}

int64_t free_memory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string key, rest; file >> key; std::getline(file, rest)) {
    int64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return kMemoryUnknown;
}

}  // namespace

int64_t quota_cores(const std::string& root) { return smallest(root, "cpu", cores_of); }

int64_t memory_below_limits(const std::string& root) { return smallest(root, "memory", memory_of); }

Capacity this_capacity() {
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());  // by affinity
  return {std::min(cores, quota_cores("")), std::min(free_memory(""), memory_below_limits(""))};
}

namespace {

constexpr int64_t kPeriodUs = 10'000;
constexpr int64_t kLeastQuotaUs = 1'000;  // the kernel's own
constexpr const char* kVersion1 = "/sys/fs/cgroup/cpu";
constexpr const char* kVersion2 = "/sys/fs/cgroup";

bool write_line(const std::string& path, const std::string& line) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  const bool written = std::fputs(line.c_str(), file) >= 0;
  return std::fclose(file) == 0 && written;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::optional<std::string> parent_folder() {
  if (exists(fmt::format("{}/cpu.cfs_period_us", kVersion1)) ||
      exists(fmt::format("{}/cpu.shares", kVersion1)))
    return kVersion1;
  if (exists(fmt::format("{}/cgroup.controllers", kVersion2))) return kVersion2;
  return std::nullopt;
}

// Folder of the group in which this process is: lines of /proc/self/cgroup are
// "NUMBER:CONTROLLER,...:/PATH", of version 2 without a controller.
std::string own_folder(const std::string& parent) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool ours =
        parent == kVersion1 ? controllers.find(",cpu,") != controllers.npos : controllers == ",,";
    if (ours) return parent + line.substr(second + 1);
  }
  return parent;
}

std::string folder_of(const std::string& parent, int64_t pid) {
  return fmt::format("{}/lockstep-{}", parent, pid);
}

bool set_quota(const std::string& parent, const std::string& folder, int64_t quota_us) {
  if (parent == kVersion1)
    return write_line(folder + "/cpu.cfs_period_us", fmt::format("{}", kPeriodUs)) &&
           write_line(folder + "/cpu.cfs_quota_us", fmt::format("{}", quota_us));
  write_line(parent + "/cgroup.subtree_control", "+cpu");  // it may be there already
  return write_line(folder + "/cpu.max", fmt::format("{} {}", quota_us, kPeriodUs));
}

bool move_into(const std::string& folder) {
  return write_line(folder + "/cgroup.procs", fmt::format("{}", ::getpid()));
}

}  // namespace

std::unique_ptr<CpuQuota> CpuQuota::enter(double cores, std::string* why) {
  const auto parent = parent_folder();
  if (!parent) {
    *why = "there are no control groups with a cpu controller";
    return nullptr;
  }
  const std::string before = own_folder(*parent), folder = folder_of(*parent, ::getpid());
  const auto quota_us = std::max(
      kLeastQuotaUs, static_cast<int64_t>(std::llround(cores * static_cast<double>(kPeriodUs))));
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    *why = fmt::format("{}: {}", folder, std::strerror(errno));
    return nullptr;
  }
  if (set_quota(*parent, folder, quota_us) && move_into(folder))
    return std::unique_ptr<CpuQuota>(new CpuQuota(before, folder));
  *why = fmt::format("{}: the quota cannot be set ({})", folder, std::strerror(errno));
  ::rmdir(folder.c_str());
  return nullptr;
}

CpuQuota::~CpuQuota() {
  move_into(before_);
  ::rmdir(folder_.c_str());
}

void CpuQuota::forget(int64_t pid) noexcept {
  for (const char* parent : {kVersion1, kVersion2}) ::rmdir(folder_of(parent, pid).c_str());
}

namespace {

constexpr int64_t kMega = 1'000'000;
constexpr int64_t kBlasBuffer = int64_t{136} << 20;  // OpenBLAS's, for each thread that computes
constexpr int64_t kOwn = int64_t{128} << 20;         // heaps, records, streams, a small model
constexpr int64_t kOwnThreads = 6;

int64_t stack_bytes() {
  pthread_attr_t attributes;
  size_t bytes = size_t{8} << 20;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
  }
  return static_cast<int64_t>(bytes);
}

int64_t needed(int64_t computing) {
  const int64_t threads = kOwnThreads + computing + std::thread::hardware_concurrency();
  return computing * kBlasBuffer + threads * stack_bytes() + kOwn;
}

bool can_be_had(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* room = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, size);
  return true;
}

struct Limit {
  const char* what;
  const char* option;
  rlim_t bytes;
};

// Of those that are set the tighter one; nothing is set: no option.
Limit tightest_limit() {
  Limit least{"", "", RLIM_INFINITY};
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < least.bytes)
    least = {"address space", "ulimit -v", limit.rlim_cur};
  if (::getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur < least.bytes)
    least = {"data", "ulimit -d", limit.rlim_cur};
  return least;
}

int64_t taken_bytes() {
  std::istringstream pages(read_file("/proc/self/statm"));
  int64_t size = 0;
  pages >> size;
  return size * ::sysconf(_SC_PAGESIZE);
}

// OpenBLAS keeps the buffers that it has once got.
void take_blas_buffers(int64_t computing) {
  using Take = void* (*)(int);
  using Leave = void (*)(void*);
  const auto take = reinterpret_cast<Take>(::dlsym(RTLD_DEFAULT, "blas_memory_alloc"));
  const auto leave = reinterpret_cast<Leave>(::dlsym(RTLD_DEFAULT, "blas_memory_free"));
  if (take == nullptr || leave == nullptr) return;
  std::vector<void*> buffers;
  for (int64_t thread = 0; thread < computing; ++thread) buffers.push_back(take(0));
  for (void* buffer : buffers) leave(buffer);
}

}  // namespace

std::string why_no_room(int64_t computing) {
  const Limit limit = tightest_limit();
  if (limit.bytes == RLIM_INFINITY || can_be_had(needed(computing))) return "";
  return fmt::format(
      "memory is limited to {} MB of {} ({}), which is too little: this process has mapped {} MB, "
      "and needs {} MB more",
      limit.bytes / kMega, limit.what, limit.option, taken_bytes() / kMega,
      needed(computing) / kMega);
}

void take_room(int64_t computing) {
  if (const std::string why = why_no_room(computing); !why.empty()) throw std::runtime_error(why);
  if (tightest_limit().bytes != RLIM_INFINITY) take_blas_buffers(computing);
}

}  // namespace lockstep
