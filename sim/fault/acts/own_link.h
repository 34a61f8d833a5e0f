#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "scenarios/base/file.h"

namespace lockstep {

// The switch that the ranks of a run are joined by: a bridge in a network namespace without a name,
// which ends with the last process that has it open. Needs root and iproute2 (`ip`).
class RunSwitch {
 public:
  // Null, with a reason, where this process may not make one. Some ten milliseconds.
  static std::unique_ptr<RunSwitch> make(std::string* why);
  // Where other processes of this machine find it while this one lives.
  std::string path() const;

 private:
  explicit RunSwitch(UniqueFd space) : space_(std::move(space)) {}
  UniqueFd space_;
};

// A rank's own network: a namespace with one link (veth) to the run's switch. What the rank sends
// can be limited or lost by the kernel. Ends with the process. One thread.
class OwnLink {
 public:
  // Moves the calling thread, and all that it starts later, into a new namespace. Blocks for some
  // ten milliseconds. Throws std::runtime_error with what the kernel said.
  static std::unique_ptr<OwnLink> join(const std::string& switch_path, int64_t rank);

  // The rank's address: 10.213.x.y, in a network that only this run has.
  const std::string& address() const { return address_; }

  // At most so many 10^6 bytes a second from now on; 0: no limit. Throws as join() does.
  void limit_mb_per_s(double mb_per_s);
  // From now on nothing that it sends arrives; it still receives. For good.
  void lose_all();
  // Moves it to a second switch, with all others that call this. For good.
  void change_side();

 private:
  OwnLink(UniqueFd own, UniqueFd run_switch, int64_t rank);
  const UniqueFd own_, switch_;
  const std::string address_, port_;
  double limit_mb_per_s_ = 0;
};

}  // namespace lockstep
