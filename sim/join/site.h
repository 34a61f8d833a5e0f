#pragma once

#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "scenarios/base/clock.h"
#include "sim/join/coordinator.h"
#include "sim/join/wire.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/process_run.h"

namespace lockstep {

// Thrown by what waits on a Link: the coordinator has said that all is over, or is gone.
class RunOver : public std::runtime_error {
 public:
  RunOver(int code, const std::string& why) : std::runtime_error(why), code_(code) {}
  int code() const { return code_; }  // the exit code of every rank

 private:
  int code_;
};

// A member's connection to the coordinator of its run (coordinator.h says what is spoken): its own
// requests, and those of its worker processes, passed on as they come. One thread, the event
// loop's; a request runs the loop until it is answered, so it is not for handlers.
class Link {
 public:
  using Message = Wire::Message;
  using OnReply = std::function<void(int64_t client, const Message& reply)>;

  Link(EventLoop& loop, Wire wire);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Everything after the number of the request. Throws RunOver, also past the deadline.
  Message request(Message message, Deadline deadline);
  std::string get(const std::string& key, Deadline deadline);
  void set(const std::string& key, const std::string& value, Deadline deadline);
  // Calls back when the key is set; from the loop.
  void when_set(const std::string& key, std::function<void()> then);

  // A store message of local worker `client`, with `prefix` before its key; its answer goes to
  // on_reply. Other messages are ignored.
  void forward(int64_t client, const Message& message, const std::string& prefix);
  void on_reply(OnReply handler) { on_reply_ = std::move(handler); }

  // From now on all is over for this member: everything throws RunOver with this code.
  void abandon(int code, const std::string& why) { note_over(code, why); }
  // Throws RunOver if all is over.
  void check() const;
  // Nanoseconds to add to this host's clock for the coordinator's; `uncertainty_ns` either way.
  int64_t clock_offset_ns(Deadline deadline, int64_t* uncertainty_ns);
  std::string own_address() const;  // numeric: of this end of the connection

 private:
  void on_readable();
  void on_message(const Message& message);
  void note_over(int code, const std::string& why);
  std::string send(Message message);
  void pass(const Message& message);
  void flush();

  EventLoop& loop_;
  Wire wire_;
  uint64_t last_id_ = 0;
  OnReply on_reply_;
  std::map<std::string, Message> answers_;  // awaited by request(): empty until there
  std::map<std::string, std::function<void()>> callbacks_;
  bool over_ = false;
  int over_code_ = 0;
  std::string over_why_;
};

// Where the ranks of a run are, as far as this process must know.
struct Topology {
  bool one_host = true;
  bool one_network = true;          // all can use loopback, also what counts as several hosts
  bool leads_host = true;           // of its host's members the one with the lowest rank
  std::vector<int64_t> ranks;       // of this process
  std::vector<int64_t> host_ranks;  // of all members on this host
  int64_t host_leader = 0;          // the lowest of them
  bool collects = true;             // rank 0 is on this host: what ranks leave is there already
};
// From the "hosts" of the coordinator. `ranks`: this process's. Throws RunOver where it is no list
// that has them and rank 0.
Topology topology_of(const std::string& hosts, const std::vector<int64_t>& ranks);

// This process's part in runs: starts its ranks and, if it leads its host, their golden runs;
// passes on what they say to the coordinator, enforces deadlines, and hands in what they leave.
class Site {
 public:
  struct Options {
    std::string worker_program;
    std::string out_dir;  // of this host
    std::string address;  // at which the ranks are to be reached
    Topology topology;
  };
  Site(EventLoop& loop, Link& link, Options options);
  ~Site();  // removes what lies on this host and was handed in: once all is over
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  // Blocks until this process's part is over and handed in. Throws RunOver (its processes are
  // killed then), and std::runtime_error where no worker can be started.
  void run(int64_t number, const RunPlan& plan);
  // The first of its ranks that failed by itself: its exit code, or 128 + its signal; 0 if none.
  int own_failure() const { return own_failure_; }

 private:
  std::string find_run_dir(int64_t number, Deadline deadline);
  void drive(ProcessRun& run, Workers& workers, int64_t number);
  void hand_in_ends(const ProcessRun& run, int64_t number, Deadline deadline);
  void hand_in_files(const std::string& run_dir, int64_t number, Deadline deadline);
  void hand_in_file(const std::string& path, int64_t number, Deadline deadline);

  EventLoop& loop_;
  Link& link_;
  const Options options_;
  std::set<std::string> told_;  // whose end the coordinator knows
  std::vector<std::string> to_remove_;
  bool failed_elsewhere_ = false;
  int own_failure_ = 0;
};

}  // namespace lockstep
