#include "sim/launch/cpu_quota.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>

namespace lockstep {
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

}  // namespace lockstep
