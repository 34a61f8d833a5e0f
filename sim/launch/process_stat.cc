#include "sim/launch/process_stat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "scenarios/base/text.h"
#include "sim/launch/run_files.h"

namespace lockstep {

ProcessStat read_process_stat(pid_t pid) {
  ProcessStat stat;
  const std::string text = read_file(fmt::format("/proc/{}/stat", pid));
  const size_t name = text.rfind(") ");  // "12 (name) S 1 ...", a name may hold ")"
  if (name == std::string::npos) return stat;
  std::istringstream words(text.substr(name + 2));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
  // As proc(5) counts them, from the third on. Some are beyond int64.
  const auto field = [&](size_t number, int64_t otherwise) {
    const size_t place = number - 3;
    return place < fields.size() ? number_in<int64_t>(fields[place]).value_or(otherwise)
                                 : otherwise;
  };
  if (!fields.empty()) stat.state = fields[0][0];
  stat.parent = static_cast<pid_t>(field(4, 0));
  stat.group = static_cast<pid_t>(field(5, 0));
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  stat.cpu_seconds = static_cast<double>(field(14, 0) + field(15, 0)) / ticks;
  stat.children_cpu_seconds = static_cast<double>(field(16, 0) + field(17, 0)) / ticks;
  stat.status = static_cast<int>(field(52, -1));
  return stat;
}

double group_cpu_seconds(pid_t group) {
  double all = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const auto pid = number_in<int64_t>(at->path().filename().string());
    if (!pid) continue;
    const ProcessStat stat = read_process_stat(static_cast<pid_t>(*pid));
    if (stat.group == group) all += stat.cpu_seconds + stat.children_cpu_seconds;
  }
  return all;
}

}  // namespace lockstep
