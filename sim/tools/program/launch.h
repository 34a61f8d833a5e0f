#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/file.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/workers.h"
#include "sim/tools/program/start.h"
#include "sim/tools/program/zygote.h"

namespace lockstep {

// One run of somebody's program: as several processes, or as one that starts its ranks itself.
struct ProgramLaunch {
  ProgramStart start;
  std::string folder;  // exists; gets recordings and rank-R.log
  std::string agent;   // folder for PYTHONPATH
  int64_t world = 1, scale = 1;
  double limit_s = 120;
  std::vector<std::string> variables = {};  // more of them: "NAME=value"
  ProgramZygotes* zygotes = nullptr;        // of which ranks are forked where that can be
};

// What to say of a run that came to nothing: empty unless it asked in vain whether there are GPUs.
std::string gpu_advice(const std::string& folder);
std::string gpu_advice_after(const std::string& folder);  // what else was said: "; it asked ..."
// "; no Python ...": of a run that came to nothing because the agent is not in it. Else empty.
std::string agent_advice_after(const std::string& folder);
// Did one device load a file that the ranks' run had saved?
bool has_resumed(const std::string& folder);
// Did a process that the program started want to be a rank, where lockstep starts the ranks?
bool starts_ranks_itself(const ProgramLaunch& launch);
inline constexpr const char* kStartsRanksItself =
    "the program starts its ranks itself (mp.spawn or the like): say --spawns";
// Of a run in which two processes wanted to be one rank.
inline constexpr const char* kOneRankTwice =
    "two of its processes have one rank: it does not take RANK and WORLD_SIZE, but asks MPI, say; "
    "--spawns is for programs that start their ranks themselves";
inline constexpr const char* kStartsRanksAgain =
    "two of its processes have one rank: it starts its ranks more than once, and one training is "
    "judged";
// Of a recording that is not that of this rank of so many: the program ran another number of them.
std::string other_world(int64_t ran, int64_t asked);

std::string program_log(const std::string& folder, int64_t rank);

struct ProgramChild {
  Spawned process;
  int64_t rank = 0;
  bool ended = false;
  int exit_code = -1, signal = 0;  // once ended; -1 and 0: how is not known
  bool by_program = false;         // the process that started it ended it
};

// The processes of one run, each the first of a group of its own; whole groups end with it.
class ProgramProcesses {
 public:
  ProgramProcesses() = default;
  ~ProgramProcesses();
  ProgramProcesses(const ProgramProcesses&) = delete;
  ProgramProcesses& operator=(const ProgramProcesses&) = delete;

  void start(const ProgramLaunch& launch);  // throws std::system_error
  std::vector<size_t> look();               // places of those that have ended since the last look
  size_t left() const;
  const std::vector<ProgramChild>& children() const { return children_; }

 private:
  std::vector<ProgramChild> children_;
  UniqueFd port_;  // held for them to meet at
};

struct ProgramEnd {
  std::string why;      // empty if every process ended with 0 in time, else a sentence
  bool exited = false;  // the reason is an exit code of one of them
  std::vector<std::string> log_tail;  // of the process that is the reason
  std::string aborted;                // what the C++ exception says that ended it, if one did
  int signal = 0;                     // that interrupted us
};

// Of the first process that did not end well; leaves the end as it is where this one did.
void take_program_end(const ProgramLaunch& launch, const ProgramChild& child, ProgramEnd* end);
// "2 of its processes had not ended after 120 s (--limit)".
std::string late_text(const std::vector<ProgramChild>& children, double limit_s);
// Where a forked rank says that only a fresh process would do: the folder is empty again, and all
// ranks from now on are fresh.
bool begins_anew(const ProgramLaunch& launch);

// Blocks until all have ended, one has failed, the limit is over, or a signal has come; whole
// process groups end with it. Once more, in fresh processes, where a forked one would not do.
ProgramEnd run_program(const ProgramLaunch& launch, Signals* signals);

}  // namespace lockstep
