#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/tools/explain/file_rank.h"
#include "sim/tools/explain/log_event.h"

namespace lockstep {

inline constexpr int64_t kLogBytesMost = int64_t{1} << 40;

// What one file of text says.
struct LogOf {
  std::vector<LogEvent> events;  // in the order of its lines
  std::set<int64_t> ranks;       // of which it is, or holds, the log
  int64_t told_rank = -1;        // the one whose word "[rank3]:" in it is
};

// One text log, a line at a time, in bounded memory whatever its size. `rank` is whose it is by its
// name, or -1.
Expected<LogOf> read_log(const std::string& path, int64_t rank);
LogOf log_of(std::string_view text, const std::string& path, int64_t rank);

// torchelastic's error.json: the exception that its process ended by.
Expected<LogOf> error_file_of(const std::string& text, const std::string& path, int64_t rank);

// Where torch.multiprocessing.spawn tells in several files whose exceptions ended it, it counts the
// processes of several nodes: then its numbers are no ranks.
void doubt_spawned(std::vector<LogEvent>* events);

// Logs whose names count the processes of one node. What "[rank11]:" in one of them tells gives the
// ranks of all of that node; with one node and no such word the numbers are ranks, with several
// nobody's.
class NodeLogs {
 public:
  void take(const FileRank& named, LogOf log);
  std::vector<LogOf> finish();

 private:
  struct Node {
    std::set<int64_t> offsets;  // rank of the job minus that of the node
    std::vector<std::pair<int64_t, LogOf>> logs;
  };

  static void renumber(int64_t local, int64_t rank, LogOf* log);

  std::map<std::string, Node> nodes_;
};

}  // namespace lockstep
