#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/join/coordinator.h"

namespace lockstep::fuzz {

// The coordinator of a job of two ranks on this machine, in a loop that is turned by hand, and
// connections to it.
class Job {
 public:
  Job();

  // Of who is not let in yet.
  UniqueFd connect();
  // Of the member with rank 0 or 1, which has said who it is; closed where it is refused.
  Wire join(int64_t rank);
  // Lets run 0 begin, whose files go to folder().
  void begin_run();
  // Until nothing more happens.
  void turn();

  Coordinator& coordinator() { return *coordinator_; }
  EventLoop& loop() { return loop_; }

 private:
  EventLoop loop_;
  std::string name_;  // of the abstract socket
  std::unique_ptr<Coordinator> coordinator_;
};

// Messages as the text of an input has them: one a line, fields apart by tabs.
std::vector<Wire::Message> messages_of(std::string_view text);

}  // namespace lockstep::fuzz
