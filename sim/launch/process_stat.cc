#include "sim/launch/process_stat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
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
  stat.cpu_seconds = static_cast<double>(field(14, 0) + field(15, 0)) /
                     static_cast<double>(::sysconf(_SC_CLK_TCK));
  stat.status = static_cast<int>(field(52, -1));
  return stat;
}

}  // namespace lockstep
