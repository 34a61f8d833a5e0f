#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/tools/program/launch.h"
#include "sim/tools/program/rank_facts.h"

namespace lockstep {

// The processes of a run's ranks, whoever starts them: lockstep, or the program itself, whose ranks
// the agent makes known (rank-R.process.json), as it does how they ended (children.jsonl). What the
// agent left is believed of descendants of the program alone. No process is left with this object.
class RankProcesses {
 public:
  RankProcesses() = default;
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void start(const ProgramLaunch& launch);  // throws std::system_error
  // Places of ranks that have ended since the last look. Of one that the program started, how it
  // ended may be known some looks later; until then it has not ended here.
  std::vector<size_t> look();
  // Is any process of lockstep's own at work? A program that has ended keeps no rank alive.
  bool at_work() const { return own_.left() > 0; }
  // Those that are known by now; of a program that starts them, in the order in which they met.
  const std::vector<ProgramChild>& ranks() const;
  // The process that starts the ranks; nothing where lockstep does.
  const ProgramChild* parent() const { return spawns_ ? &own_.children()[0] : nullptr; }
  // What was wrong with a file of the agent, of which nothing is believed; empty: nothing was.
  const std::string& why_unread() const { return why_unread_; }

 private:
  void find(int64_t rank);
  bool descends(pid_t pid);
  ChildEnd told_of(pid_t pid);
  bool take_end(ProgramChild* rank);
  template <class T>
  void note_unread(const Expected<T>& read) {
    if (!read && why_unread_.empty()) why_unread_ = to_text(read.errors()[0]);
  }

  ProgramProcesses own_;
  bool spawns_ = false;
  int64_t world_ = 0;
  std::string folder_, why_unread_;
  std::vector<ProgramChild> spawned_;
};

}  // namespace lockstep
