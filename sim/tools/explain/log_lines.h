#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/tools/explain/log_event.h"

namespace lockstep {

// Who wrote a line, as launchers and PyTorch mark it.
struct LogPrefix {
  int64_t rank = -1;
  bool local = false;     // torchrun's [default3]: counts one node's processes
  bool uncaught = false;  // [rank3]: of a Python line, by PyTorch's hook for uncaught exceptions
  std::string_view rest;  // the line without it
};
LogPrefix log_prefix(std::string_view line);

// Reads the lines of one file in order. Memory is bounded, whatever comes: so many events of a
// rank and kind are kept, the first ones; texts are cut short.
class LogReader {
 public:
  // `rank` is whose file it is, -1 where it is several ranks' or unknown: by the file's
  // name, which a "[rank3]:" in it overrules.
  LogReader(std::string file, int64_t rank);

  void take(std::string_view line);
  void next_line() { ++line_; }
  // What was read; ranks of one node are counted as the job's where the file tells how.
  std::vector<LogEvent> finish();
  // Ranks of which this is, or holds, the log; complete after finish().
  const std::set<int64_t>& ranks() const { return ranks_; }

 private:
  struct Traceback {
    bool open = false;
    bool in_distributed = false;  // the innermost call so far is one of torch.distributed
    bool uncaught = false;
    int64_t spawned = -1;  // whose it is, as torch.multiprocessing.spawn says
  };

  void take_recognized(std::string_view line, const LogPrefix& prefix);
  bool take_traceback(std::string_view line, const LogPrefix& prefix);
  void end_traceback(Traceback* traceback, std::string_view line, const LogPrefix& prefix);
  void keep(LogEvent event, const LogPrefix& prefix, std::string_view text);
  void take_field(std::string_view line, const LogPrefix& prefix);
  void see(int64_t rank);

  std::string file_;
  int64_t file_rank_;
  int64_t told_rank_ = -1;  // by the first "[rank3]:"
  int64_t line_ = 1;
  std::vector<LogEvent> events_;
  std::map<std::pair<int64_t, LogEventKind>, int64_t> kept_;
  std::map<int64_t, Traceback> tracebacks_;
  std::set<int64_t> ranks_;
  int64_t spawned_ = -1;      // the process whose traceback comes next
  LogEvent failure_;          // of torchelastic's table, as far as it was read
  bool root_cause_ = false;   // the table's last part has begun
  bool agent_ = false;        // torchelastic writes here: a task of Slurm is no rank
  bool step_ends_ = false;    // Slurm ends all tasks: further ends say nothing
  int64_t node_offset_ = -1;  // rank of the job minus rank of the node
};

}  // namespace lockstep
