#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/launch/executor.h"
#include "sim/launch/workers.h"

namespace lockstep {

// Runs whose ranks are threads: a few host processes, each of which asks for one run after the
// other. A host that dies takes its run down, and another takes its place.
class ThreadHosts {
 public:
  // Delivers the outcome of plan `index`; true if its run directory is to stay.
  using Deliver = std::function<bool(size_t index, RunOutcome outcome)>;

  ThreadHosts(Workers& workers, const std::vector<RunPlan>& plans, std::string out_dir,
              Deliver deliver);
  ~ThreadHosts();  // removes the hosts' directories; the workers have ended by then or will
  ThreadHosts(const ThreadHosts&) = delete;
  ThreadHosts& operator=(const ThreadHosts&) = delete;

  void add(size_t index) { queue_.push_back(index); }
  bool empty() const { return queue_.empty(); }
  // Starts up to `count` hosts, never more than there are runs.
  void start(size_t count);
  bool over() const { return hosts_.empty() && queue_.empty(); }
  bool started() const { return last_host_ > 0; }
  // Call after every wait of the event loop. Throws std::runtime_error if hosts cannot live.
  void advance(Deadline now);
  // Ends all; a second call at once. Runs not begun are dropped.
  void interrupt();

 private:
  struct Host {
    std::shared_ptr<Worker> worker;
    std::string dir;
    std::optional<size_t> current;
    Deadline began{};  // its run, or its waiting for one
    Deadline changed{};
    Deadline next_check{};
    uint64_t appended = 0;
  };

  void start_host();
  void on_message(Host& host, const Channel::Message& message);
  void next_run(Host& host, const std::string& id);
  void run_done(Host& host, const std::string& evidence);
  void run_lost(Host& host);
  void finish(Host& host, RunOutcome outcome);
  void check_deadlines(Host& host, Deadline now);
  void end_late(Host& host);
  RunOutcome outcome_of(const Host& host) const;
  const RunPlan& plan_of(const Host& host) const { return plans_[*host.current]; }

  Workers& workers_;
  const std::vector<RunPlan>& plans_;
  std::string out_dir_;
  Deliver deliver_;
  std::deque<size_t> queue_;
  std::list<Host> hosts_;                  // stable addresses
  std::chrono::milliseconds idle_max_{0};  // that a host may take to ask for a run, or to end
  int64_t last_host_ = 0;
  int idle_deaths_ = 0;  // in a row, of hosts that had no run
  bool interrupted_ = false;
};

}  // namespace lockstep
