#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/launch/event_loop.h"
#include "sim/launch/protocol.h"
#include "sim/launch/workers.h"

namespace lockstep {

// Pythons that have imported torch and wait where the script would begin (python/lockstep/agent/
// zygote.py): ranks of all runs of a verdict are forked of them, and are children of this process
// as if spawned. There are two where Python draws the hashes of strings: neighbouring ranks, as two
// fresh processes, iterate over their sets in different orders.
class ProgramZygotes {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Begins to import, where the command is a Python that the agent reaches.
  // `folder`: for their logs; `directory`: in which the command runs, empty: the caller's.
  ProgramZygotes(const std::vector<std::string>& command, const std::string& agent,
                 const std::string& folder, const std::string& directory);
  ~ProgramZygotes();
  ProgramZygotes(const ProgramZygotes&) = delete;
  ProgramZygotes& operator=(const ProgramZygotes&) = delete;

  // Until torch is imported, the deadline is over or a signal waits.
  void wait(Deadline until, const Signals& signals);
  // Forks, or spawns where that cannot be. Throws std::system_error.
  Spawned start(int64_t rank, const SpawnOptions& options);
  bool fork() const { return !zygotes_.empty(); }
  // From now on ranks are fresh processes, for this reason.
  void give_up(std::string why);
  const std::string& why_fresh() const { return why_fresh_; }

 private:
  struct Zygote {
    Spawned process;
    Channel channel;
    std::string log;
    bool ready = false;
  };
  void end_all();
  bool receive(Zygote* zygote, Channel::Message* message);

  std::vector<Zygote> zygotes_;
  std::string why_fresh_;
};

}  // namespace lockstep
