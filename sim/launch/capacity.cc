#include "sim/launch/capacity.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <thread>

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

}  // namespace lockstep
