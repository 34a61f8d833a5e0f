#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "sim/join/coordinator.h"
#include "sim/join/link.h"
#include "sim/launch/process_run.h"

namespace lockstep {

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
