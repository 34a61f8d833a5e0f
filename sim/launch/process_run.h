#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/launch/executor.h"
#include "sim/launch/protocol.h"
#include "sim/launch/workers.h"

namespace lockstep {

// Of a run that several launchers start together, what is this one's: by default all of it.
struct RunPart {
  using Store = std::function<void(int64_t client, const Channel::Message& message)>;
  std::vector<int64_t> ranks = {};  // empty: all
  bool goldens = true;              // golden runs are its own: one launcher of each host
  bool rounding = true;             // ... and what watches rank 0's states: where it is
  std::vector<int64_t> host_ranks = {};
  std::string address = {};  // both as in WorkerTask
  Store store = {};          // who answers the workers; none: the run itself
};

// One run whose ranks and golden runs are processes: starts them all, serves their store, enforces
// the deadlines from outside, and gathers what they leave. Nothing here blocks.
class ProcessRun {
 public:
  // `run_dir` exists and holds nothing. Starts the processes.
  ProcessRun(Workers& workers, RunPlan plan, std::string run_dir, RunPart part = {});
  ProcessRun(const ProcessRun&) = delete;
  ProcessRun& operator=(const ProcessRun&) = delete;

  // Call after every wait of the event loop.
  void advance(Deadline now);
  bool over() const;
  // Ends everything; a second call at once.
  void interrupt();
  // An answer of part.store.
  void reply(int64_t client, const Channel::Message& message);
  // A process of another launcher's part has failed.
  void note_failure_elsewhere(Deadline now);
  const std::vector<ProcessEnd>& ends() const { return outcome_.ends; }
  const std::string& golden_problem() const { return outcome_.golden_problem; }
  // Once it is over. Of a run that is all its own.
  RunOutcome take_outcome();

  static int64_t process_count(const RunPlan& plan);

 private:
  struct Member {
    std::shared_ptr<Worker> worker;
    bool noted = false;  // its end stands in ends_
    Deadline started = kNoDeadline;
    uint64_t appended = 0;
    Deadline changed{};                 // when its newest event was recorded
    bool joined = false;                // it is beyond the rendezvous
    bool first_late = false;            // nothing had failed before its deadline passed
    std::optional<ProcessState> state;  // when the run had failed
    Deadline end_at = kNoDeadline;      // it has been asked for its stack, and may take until then
  };

  void start(const std::string& role, const std::string& golden, int64_t rank);
  void note_ends(Deadline now);
  void note_failure(Deadline now);
  void note_core_wait();
  bool ended_well(const Member& member) const;
  void note_golden(const Member& member);
  void check_deadlines(Deadline now);
  bool is_late(Member& member, Deadline now);
  bool ends_on_their_way(Deadline now);
  void past_deadline(Member& member, Deadline now);
  void end_with_stack(Member& member, Deadline now);
  void end_those_asked(Deadline now);
  void end_all(std::chrono::milliseconds grace);
  bool ranks_over() const;

  Workers& workers_;
  RunOutcome outcome_;
  const RunPart part_;
  RunStore store_;
  std::vector<Member> members_;
  Deadline began_;
  Deadline first_bad_ = kNoDeadline;
  Deadline next_check_;
  Deadline unseen_end_ = kNoDeadline;  // when an end was first seen that nobody had told yet
  int64_t core_wait_ns_ = 0;           // of launcher and zygote when the run began
};

// Puts an end where it belongs: after those learnt before, but a process that ended by its own
// cause goes before those that noticed it (kExitCommError) at nearly the same time.
void insert_end(std::vector<ProcessEnd>* ends, ProcessEnd end);

}  // namespace lockstep
