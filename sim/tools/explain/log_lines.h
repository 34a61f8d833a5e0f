#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/tools/explain/log_event.h"
#include "sim/tools/explain/log_prefix.h"

namespace lockstep {

inline constexpr std::string_view kTraceback = "Traceback (most recent call last):";
inline constexpr std::string_view kRichTraceback = "Traceback (most recent call last) ─";  // rich's
inline constexpr std::string_view kRepeated = "x across cluster]";                         // Ray's
inline constexpr std::string_view kNodeBegins = "num_local_procs=";  // DeepSpeed's launcher

// Reads the lines of one file in order. Memory is bounded, whatever comes: so many events of a
// rank and kind are kept, the first ones; texts are cut short.
class LogReader {
 public:
  // `rank` is whose file it is by its name, -1 where it is several ranks' or unknown. A "[rank3]:"
  // in it overrules the name, and several, or a launcher's words, say that it is no rank's.
  LogReader(std::string file, int64_t rank);

  // A line, or a record of several that stands in one.
  void take(std::string_view line);
  void next_line() { ++line_; }
  // What was read; ranks of one node are counted as the job's where the file tells how.
  std::vector<LogEvent> finish();
  // Ranks of which this is, or holds, the log; complete after finish().
  const std::set<int64_t>& ranks() const { return ranks_; }
  // The one rank that "[rank3]:" in it names, or -1; after finish().
  int64_t told_rank() const { return told_.size() == 1 ? *told_.begin() : -1; }

 private:
  struct Traceback {
    bool open = false;
    bool in_distributed = false;  // the innermost call so far is one of torch.distributed
    bool of_server = false;       // and one of what asks servers by HTTP
    bool uncaught = false;
    bool passing = false;  // what raised it did not end for it
    bool repeated = false;
    size_t indent = 0;     // of its last line: in torchelastic's table, which moves all of it
    int64_t spawned = -1;  // whose it is, as torch.multiprocessing.spawn or that table says
    void take_file(std::string_view file);
    bool of_node = false;  // the former, which counts one node's
  };

  // An event, and by whose word its rank is known.
  struct Kept {
    LogEvent event;
    LineOwner owner = LineOwner::nobody;
    bool of_file = false;      // by the file's name
    bool told_twice = false;   // by "[rank0]:[rank8]:"
    bool handled = false;      // an exception while whose handling another came
    bool outlived = false;     // an exception of nobody's, after which training went on
    bool by_prefix = false;    // that nobody caught it, "[rank3]: " says
    int64_t lines_before = 0;  // of the same rank
  };

  // Of a node's run, as torchelastic's table tells that it ended.
  struct Run {
    std::map<int64_t, std::string> times;  // by rank: when it ended
    int64_t over = 0;                      // the line in which the table ends
    int64_t second = -1;                   // since 1970, by the table
  };

  void take_line(std::string_view line, int64_t rank);
  bool begins_again(std::string_view line);
  void take_run(const LogEvent& failure, int64_t local);
  void see_running(const LogEvent& event, const LogPrefix& prefix);
  void forget_run(int64_t node);
  void forget_old_runs(int64_t second);
  void go_on_with_record(LogPrefix* prefix);
  void take_recognized(std::string_view line, const LogPrefix& prefix);
  void take_bare(const LogPrefix& prefix);
  bool take_section(std::string_view line);
  void own_what_nobody_claims();
  void doubt_unclaimed(const LogPrefix& prefix);
  bool is_of_one_node() const;
  void see_agent(std::string_view line, const LogPrefix& prefix);
  bool take_traceback(std::string_view line, const LogPrefix& prefix);
  bool begin_traceback(std::string_view line, size_t start, const LogPrefix& prefix);
  void go_on_with(Traceback* traceback, std::string_view line, const LogPrefix& prefix);
  void end_traceback(Traceback* traceback, std::string_view line, const LogPrefix& prefix);
  void keep(LogEvent event, const LogPrefix& prefix, std::string_view text);
  void note_uncaught(const LogPrefix& prefix, bool alone);
  void doubt_uncaught(const LogPrefix& prefix);
  void find_rank(std::string_view line, std::string_view needle, const LogPrefix& prefix,
                 LogEvent* event);
  void take_wrapped(std::string_view line);
  void take_last_line(const LogPrefix& prefix);
  void take_field(std::string_view line, const LogPrefix& prefix);
  void take_failure(std::string_view line, const LogPrefix& prefix);
  void take_exit_code(std::string_view code, const LogPrefix& prefix);
  void doubt_kills();
  void see(const LogPrefix& prefix);
  void doubt_fallen(const LogPrefix& prefix);
  bool tasks_are_ranks() const;
  void see_prefixed(const LogPrefix& prefix);
  void explain_lost(const LogPrefix& prefix);
  void take_group(const LogEvent& event);
  void take_assignment(std::string_view line, const LogPrefix& prefix);
  void set_node_offset(int64_t rank, int64_t local);
  void forget_handled(const LogPrefix& prefix);
  void forget_chained(std::string_view last, int64_t rank);
  bool went_on(const Kept& kept) const;
  void forget_attempt();
  int64_t own_rank() const;
  bool numbers_are_ranks() const;
  void settle(Kept* kept) const;

  std::string file_;
  int64_t file_rank_;
  int64_t line_ = 1;
  int64_t labels_ = 0;  // lines with "3: " before them
  int64_t lines_ = 0;   // from the first of these on
  int64_t counted_ = 0;
  int64_t torchrun_ = -1000;                    // the last line in which it told of itself
  bool numbered_ = false, unnumbered_ = false;  // lines with "[3] " before them; others after one
  std::set<int64_t> told_, told_twice_;         // by "[rank3]:"
  std::set<int64_t> labelled_;                  // by "3: ", and by mpirun
  LogHosts hosts_;
  std::vector<Kept> events_;
  std::map<std::pair<int64_t, LogEventKind>, int64_t> kept_;
  std::map<int64_t, Traceback> tracebacks_;
  // By rank: the end in its own lines, as a shell's "Segmentation fault", after which nothing came.
  std::map<int64_t, size_t> fallen_;
  int64_t most_task_ = -1;  // of Slurm's that ended
  // By rank: the exception that, as its prefix says, nobody caught, and was that a line alone?
  struct Uncaught {
    size_t event;
    bool alone;
  };
  std::map<int64_t, Uncaught> uncaught_;
  std::map<int64_t, int64_t>
      passing_;  // by rank: the line that says of what comes that it ends nothing
  std::map<int64_t, int64_t> lines_of_;  // by rank: how many there were
  std::set<int64_t> ranks_;
  std::optional<size_t> unclaimed_;  // the last exception that is nobody's
  int64_t steps_after_ = 0;          // that were told of after it, by nobody
  std::string plain_;                // a line without its colors
  int64_t section_rank_ = -1;        // whose lines these are, as the heading before them says
  std::set<int64_t> named_;          // by such headings, and by records
  int64_t world_ = 0;                // as it is told here
  int64_t spawned_ = -1;             // the process whose traceback comes next
  int64_t wrapped_ = 0;              // lines in which the signal of the last end may still come
  int64_t table_rank_ = -1;          // of torchelastic's table: whose part was read last
  LogEvent failure_;                 // and that, as far as it was read
  int64_t table_local_ = -1;         // its number on its node
  std::map<int64_t, Run> runs_;      // by the first rank of their node
  size_t forgotten_ = 0;             // events of runs that are over, the first ones
  int64_t record_rank_ = -1;         // whose record the last line with a prefix began
  std::set<int64_t> begun_;          // nodes of which DeepSpeed's launcher said that they begin
  bool root_cause_ = false;          // the table's last part has begun
  bool launcher_ = false;            // how processes ended is told here: the file is no rank's
  std::set<int64_t> agents_;         // labels and tags before what torchelastic's agents write
  bool agent_ = false;               // torchelastic writes here: a task of Slurm is no rank
  bool closes_ = false;              // and whom it ended, it says
  std::set<int64_t> killed_;         // process ids that torchelastic ended with SIGKILL
  bool step_ends_ = false;           // Slurm ends all tasks: further ends say nothing
  bool groups_ = false;              // of some of the ranks are named here
  bool prefixed_ = false;            // somebody else than PyTorch's hook writes "[rank3]: "
  bool role_ranks_ = false;          // "[rank0]:[rank8]:" was there: alone, the first is of a node
  std::set<int64_t> node_offsets_;  // ranks of the job minus ranks of the node: one, if it is known
};

}  // namespace lockstep
