#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace lockstep {

// What one line of a job's text logs says, typed: nothing below decides by reading the line again.
enum class LogEventKind {
  timed_out,   // the rank waited in vain for a collective or for peers
  progress,    // how far the rank was in a group
  lost_peer,   // a connection, or a peer, was gone
  absent,      // the rank says which others did not come to a barrier
  mismatch,    // the rank saw that ranks called different collectives
  exception,   // a Python exception that is not of communication
  ended,       // the process ended by a signal or with an exit code other than 0
  stopped,     // the launcher ended the process, because of another one or of the job
  job_ended,   // somebody ended the whole job: a time limit, a cancellation, a lost node
  stuck,       // the rank's watchdog made no progress: its own doing, or a peer's
  node_fault,  // a kernel reports a GPU's error, or a process that it ended for want of memory
  world,       // how many ranks the job has
};

struct LogEvent {
  LogEventKind kind = LogEventKind::timed_out;
  int64_t rank = -1;   // -1: the line does not say whose it is
  bool local = false;  // the number counts the processes of one node
  std::string group;   // by its name; empty where the line does not say
  int64_t sequence = -1;
  std::string operation, sizes, description;  // of the group
  int64_t timeout_ms = 0, ran_ms = 0;
  int64_t enqueued = -1, completed = -1;
  std::set<int64_t> ranks;                // of absent
  std::map<int64_t, std::string> called;  // of mismatch: what ranks called, where the line says
  int64_t world = 0;
  int64_t signal = 0, code = 0;
  bool first = false;       // the launcher saw this end first
  bool sent_more = false;   // of mismatch: a peer sent more than the rank asked for
  bool own = false;         // an exception that peers cannot have caused
  bool certain = false;     // an exception that nobody caught
  bool forced = false;      // an end that may be the launcher's doing, after another one
  bool foreign = false;     // of a process that is none of a job's: to be passed over
  bool in_group = false;    // its rank is that within a group, which the line does not name
  bool of_others = false;   // of absent: told by a coordinator, which need not be there itself
  bool ordered = false;     // of job_ended: its processes were told to end
  bool in_the_end = false;  // of job_ended: told when all was over, wherever it stands
  bool by_agent = false;    // torchelastic's, or another launcher's that starts a node's ranks
  bool of_task = false;     // of an end: the rank is a task of Slurm's
  bool of_spawn = false;    // torch.multiprocessing.spawn says whose it is, and counts a node's
  bool explains = false;    // why a call of the rank failed that seemed to have lost a peer
  bool hint = false;        // something failed, and nobody says what or whose it was
  bool repeated = false;    // Ray shows it for several ranks, of which it names one
  std::string time;         // of an end, as the launcher writes it: to be compared
  std::string text;         // as it stands in the log, cut short
  std::string file;
  int64_t line = 0;
};

const char* name_of(LogEventKind kind);

}  // namespace lockstep
